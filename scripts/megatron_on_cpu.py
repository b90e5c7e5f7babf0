#!/usr/bin/env python3
"""Runs a program of NVIDIA's Megatron-LM (pretrain_gpt.py unless another is named) on CPUs, without CUDA.

  python scripts/megatron_on_cpu.py --megatron DIR [--ranks N] [--program FILE] [--losses FILE] -- FLAGS OF THE PROGRAM

It starts N processes with the variables of `torchrun` on this machine. In each of them the names of torch.cuda are
mapped to the CPU and NCCL groups become gloo groups; everything else is Megatron's own code: arguments, data, schedules,
training loop, checkpoints. Flags that a CPU needs are added unless they are given (see CPU_FLAGS). --losses keeps the
losses with all their digits, as lines of JSON.

Needs: torch, numpy, einops, packaging, pybind11, psutil and a C++ compiler (Megatron compiles its index builder). Not part of CI.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import types
import typing

# Kernels that exist on GPUs only are switched off; the unfused code computes the same functions.
CPU_FLAGS = [
    ["--transformer-impl", "local"],
    ["--no-persist-layer-norm"],
    ["--no-masked-softmax-fusion"],
    ["--no-gradient-accumulation-fusion"],
    ["--no-rope-fusion"],
    ["--num-workers", "0"],
    ["--distributed-backend", "gloo"],
    ["--tokenizer-type", "NullTokenizer"],
]
# These fused functions are plain Python and would run; the GELU with a bias is another function than the unfused one.
FUSION_FLAGS = [["--no-bias-swiglu-fusion"], ["--no-bias-gelu-fusion"], ["--no-bias-dropout-fusion"]]


def on_cpu(device):
    """The device that stands for `device` here: CUDA devices, also by number, are the CPU."""
    import torch

    if isinstance(device, bool) or device is None:
        return device
    if isinstance(device, int):
        return torch.device("cpu")
    if isinstance(device, str) and device.startswith("cuda"):
        return torch.device("cpu")
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("cpu")
    return device


class Stream:
    """A stream or an event: on a CPU everything has happened when a call returns."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def query(self):
        return True

    def record_event(self, event=None):
        return event or Stream()

    def elapsed_time(self, other):
        return 0.0

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False


class DeviceProperties:
    name = "CPU"
    major, minor = 9, 0
    total_memory = 1 << 36
    multi_processor_count = 1


def map_torch_cuda():
    import torch

    cuda = torch.cuda
    nothing = lambda *args, **kwargs: None
    zero = lambda *args, **kwargs: 0
    values = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "current_device": lambda: 0,
        "get_device_name": lambda *args: "CPU",
        "get_device_capability": lambda *args: (9, 0),
        "get_device_properties": lambda *args: DeviceProperties(),
        "memory_stats": lambda *args: __import__("collections").defaultdict(int),
        "mem_get_info": lambda *args: (1 << 36, 1 << 36),
        "Stream": Stream,
        "Event": Stream,
        "stream": lambda *args: contextlib.nullcontext(),
        "device": lambda *args: contextlib.nullcontext(),
        "current_stream": lambda *args: Stream(),
        "default_stream": lambda *args: Stream(),
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "manual_seed": lambda seed: torch.default_generator.manual_seed(seed) and None,
        "is_current_stream_capturing": lambda: False,
        "_lazy_init": nothing,
        "_lazy_call": lambda function, **kwargs: function(),
    }
    for name in ("set_device", "synchronize", "empty_cache", "set_stream", "reset_peak_memory_stats", "ipc_collect"):
        values[name] = nothing
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        values[name] = zero
    for name, value in values.items():
        setattr(cuda, name, value)
    cuda.random.get_rng_state = values["get_rng_state"]
    cuda.random.set_rng_state = values["set_rng_state"]
    cuda.manual_seed_all = nothing
    cuda.default_generators = (torch.default_generator,) * 8
    torch.accelerator.is_available = lambda: False
    torch.optim.Optimizer._accelerator_graph_capture_health_check = nothing
    nvtx = cuda.nvtx
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(nvtx, name, nothing)
    for name in ("FloatTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ByteTensor", "DoubleTensor"):
        setattr(cuda, name, getattr(torch, name))


def map_tensors():
    """Tensors asked for on CUDA are made on the CPU, and name their type as a CUDA tensor would."""
    import torch

    itself = lambda self, *args, **kwargs: self
    torch.Tensor.cuda = itself
    torch.Tensor.pin_memory = itself
    torch.nn.Module.cuda = itself
    type_of = torch.Tensor.type

    def type_as_on_cuda(self, dtype=None, **kwargs):
        if dtype is None:
            # Under the mode below, torch looks up `type` by its name and so comes here twice.
            return type_of(self).replace("torch.cuda.", "torch.").replace("torch.", "torch.cuda.")
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        return type_of(self, dtype, **kwargs)

    torch.Tensor.type = type_as_on_cuda

    class OnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if "device" in kwargs:
                kwargs["device"] = on_cpu(kwargs["device"])
            if function is torch.Tensor.to:
                args = tuple(
                    a if isinstance(a, bool) or i == 0 else on_cpu(a) for i, a in enumerate(args)
                )
            kwargs.pop("pin_memory", None)
            return function(*args, **kwargs)

    OnCpu().__enter__()


def map_distributed():
    import torch
    import torch.distributed as dist

    init, new_group = dist.init_process_group, dist.new_group

    def gloo_init(*args, **kwargs):
        kwargs.pop("device_id", None)
        kwargs["backend"] = "gloo"
        return init(**kwargs)

    def gloo_group(*args, **kwargs):
        kwargs["backend"] = "gloo"
        kwargs.pop("pg_options", None)
        return new_group(*args, **kwargs)

    dist.init_process_group = gloo_init
    dist.new_group = gloo_group
    dist.distributed_c10d.new_group = gloo_group
    barrier = dist.barrier
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group=group, async_op=async_op)

    # Counts of tokens come from the device as numbers; those of a CPU tensor stay a tensor.
    exchange = dist.all_to_all_single
    numbers = lambda sizes: sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes

    def all_to_all(output, input, output_split_sizes=None, input_split_sizes=None, **kwargs):
        return exchange(output, input, numbers(output_split_sizes), numbers(input_split_sizes), **kwargs)

    dist.all_to_all_single = all_to_all

    # gloo lacks the mean; a sum divided is the same.
    for name in ("all_reduce", "reduce_scatter_tensor", "_reduce_scatter_base"):
        setattr(dist, name, without_mean(getattr(dist, name)))


def without_mean(collective):
    import torch.distributed as dist

    def call(output, *args, **kwargs):
        op = kwargs.get("op", dist.ReduceOp.SUM)
        if op != dist.ReduceOp.AVG:
            return collective(output, *args, **kwargs)
        kwargs["op"] = dist.ReduceOp.SUM
        result = collective(output, *args, **kwargs)
        if result is not None:
            result.wait()
        output.div_(dist.get_world_size(kwargs.get("group")))
        return result

    return call


def stand_ins():
    """What a newer Python or a package for GPUs would bring."""
    if not hasattr(typing, "override"):
        typing.override = lambda method: method
    # A spawned process would start the program anew, without this mapping; a forked one keeps it.
    import torch.multiprocessing

    forked = multiprocessing.get_context("fork")
    multiprocessing.get_context = torch.multiprocessing.get_context = lambda method=None: forked


def stand_in_for_apex_norm():
    """The function behind Megatron's own LayerNorm, which --apply-layernorm-1p needs."""
    import torch

    class LayerNorm:
        @staticmethod
        def forward(ctx, input, weight, bias, normalized_shape, eps):
            raise NotImplementedError

        @staticmethod
        def apply(input, weight, bias, normalized_shape, eps):
            return torch.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps)

    names = ("apex", "apex.normalization", "apex.normalization.fused_layer_norm")
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules[names[-1]].FusedLayerNormAffineFunction = LayerNorm


def stand_in_for_apex_adam():
    """Adam that keeps its step in the groups of parameters, as Apex's and Transformer Engine's do: Megatron loads the
    distributed optimizer's state only with these. It is written here, by the formula of both; theirs need CUDA."""
    import torch
    import megatron.core.optimizer
    import megatron.core.optimizer.distrib_optimizer

    class FusedAdam(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True,
                     weight_decay=0.0, capturable=False):
            assert adam_w_mode and bias_correction and not capturable
            super().__init__(params, dict(lr=lr, bias_correction=True, betas=betas, eps=eps, weight_decay=weight_decay))

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                if not group["params"]:  # of another pipeline stage: it counts no steps there either
                    continue
                group["step"] = group.get("step", 0) + 1
                beta1, beta2 = group["betas"]
                correction1, correction2 = 1 - beta1 ** group["step"], 1 - beta2 ** group["step"]
                for parameter in group["params"]:
                    gradient = parameter.grad
                    # A rank of Megatron-FSDP that has nothing of a parameter has no gradient of it either, and yet takes
                    # part in saving its state.
                    if gradient is None and not hasattr(parameter, "placements"):
                        continue
                    state = self.state[parameter]
                    if not state:
                        state["exp_avg"] = torch.zeros_like(parameter)
                        state["exp_avg_sq"] = torch.zeros_like(parameter)
                    if gradient is None:
                        continue
                    mean, square = state["exp_avg"], state["exp_avg_sq"]
                    mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
                    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    size = (square / correction2).sqrt_().add_(group["eps"])
                    parameter.addcdiv_(mean / correction1, size, value=-group["lr"])

    megatron.core.optimizer.Adam = FusedAdam
    megatron.core.optimizer.USING_PYTORCH_OPTIMIZER = False
    distributed = megatron.core.optimizer.distrib_optimizer
    distributed.Adam = FusedAdam
    distributed.HAVE_APEX_OR_TE = distributed.USING_APEX_OPTIMIZER = True


def without_layers_for_inference():
    """Layers that Transformer Engine would bring: without it Megatron cannot even ask whether a layer is one of them."""
    from megatron.core.tensor_parallel import inference_layers

    inference_layers.is_inference_column_parallel_linear = lambda module: False


def keep_losses(path):
    """Every call of Megatron's training_log also adds a line to `path`."""
    import megatron.training.training as training

    log = training.training_log

    def logged(losses, *args, **kwargs):
        # The first call of an interval empties the totals; the losses of this iteration are in `losses`.
        values = {}
        for name, value in losses.items():
            # [sum, tokens], or the mean.
            value = value.double().flatten()
            values[name] = (value[0] / value[1] if value.numel() > 1 else value[0]).item()
        if values:
            with open(path, "a") as file:
                file.write(json.dumps(values) + "\n")
        return log(losses, *args, **kwargs)

    training.training_log = logged


def run_one_rank(options, flags):
    stand_ins()
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    # Megatron's Makefile asks `python3-config`, which a virtual environment does not have.
    os.environ["MAKEFLAGS"] = "LIBEXT=" + sysconfig.get_config_var("EXT_SUFFIX")
    sys.path.insert(0, options.megatron)
    import torch
    import torch._dynamo  # looks at the functions of torch.cuda, so before they change

    torch.set_num_threads(1)
    # Fusions by the compiler would change roundings and take minutes.
    torch.compile = lambda function=None, **kwargs: function or (lambda inner: inner)
    map_torch_cuda()
    map_tensors()
    map_distributed()
    if "--apply-layernorm-1p" in flags:
        stand_in_for_apex_norm()
    stand_in_for_apex_adam()
    without_layers_for_inference()
    program = options.program
    if not os.path.exists(program):
        program = os.path.join(options.megatron, program)
    sys.path.insert(1, os.path.dirname(os.path.abspath(program)))
    given = {flag.split("=")[0] for flag in flags}
    for words in CPU_FLAGS + ([] if options.keep_fusions else FUSION_FLAGS):
        if words[0] not in given:
            flags = flags + words
    if options.losses and os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1):
        keep_losses(options.losses)  # the last rank has the last pipeline stage
    sys.argv = [program] + flags
    runpy.run_path(program, run_name="__main__")


def versions(megatron):
    """Which Megatron-LM lies in the folder and which torch runs it: a line to stand above what was measured with them."""
    from importlib.metadata import version

    with open(os.path.join(megatron, "megatron", "core", "package_info.py")) as file:
        numbers = re.findall(r"^(?:MAJOR|MINOR|PATCH) = (\d+)", file.read(), re.MULTILINE)
    # A folder within another repository has a prefix there.
    found = subprocess.run(["git", "-C", megatron, "rev-parse", "--show-prefix", "HEAD"], capture_output=True, text=True)
    prefix, _, commit = found.stdout.partition("\n")
    known = found.returncode == 0 and prefix == ""
    where = f"commit {commit.strip()}" if known else "commit unknown: the folder is no git checkout"
    return f"Megatron-LM {'.'.join(numbers)} ({where}), torch {version('torch')}"


def check_all(cases):
    """Whether all cases, objects with a name and a check(), are good. One that fails does not end the others."""
    bad = []
    for case in cases:
        try:
            good = case.check()
        except Exception as error:
            good = False
            print(f"{case.name:22} FAILED: {type(error).__name__}: {error}", flush=True)
        if not good:
            bad.append(case.name)
    print(f"{len(cases) - len(bad)} of {len(cases)} cases are good" + (", not " + ", ".join(bad) if bad else ""), flush=True)
    return not bad


def start_ranks(options):
    """N processes with torchrun's variables; the first that fails ends the others."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(options.ranks):
        environment = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(options.ranks),
            LOCAL_WORLD_SIZE=str(options.ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            OMP_NUM_THREADS="1",
            PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""),
        )
        ranks.append(subprocess.Popen([sys.executable] + sys.argv, env=environment))
    code = 0
    try:
        while ranks and code == 0:
            for process in list(ranks):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(timeout=0.2) or code
                    ranks.remove(process)
    finally:
        for process in ranks:
            process.terminate()
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", default=os.environ.get("MEGATRON_LM"), help="a checkout of Megatron-LM")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--program", default="pretrain_gpt.py")
    parser.add_argument("--keep-fusions", action="store_true", help="without the flags --no-bias-...-fusion")
    parser.add_argument("--losses", help="file for the losses of every iteration")
    words = sys.argv[1:]
    flags = words[words.index("--") + 1 :] if "--" in words else []
    options = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if not options.megatron:
        parser.error("--megatron or the variable MEGATRON_LM says where Megatron-LM lies")
    if "RANK" in os.environ:
        run_one_rank(options, flags)
    else:
        sys.exit(start_ranks(options))


if __name__ == "__main__":
    main()
