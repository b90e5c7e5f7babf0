#!/usr/bin/env python3
"""Makes tests/data/megatron_moe/*.safetensors: what megatron-core's own MoELayer computes.

    python3 -m venv .deps/megatron
    .deps/megatron/bin/pip install torch==2.9.1 megatron-core==0.16.1 numpy einops
    .deps/megatron/bin/python scripts/make_megatron_moe_fixtures.py                  # all of them
    .deps/megatron/bin/python scripts/make_megatron_moe_fixtures.py sigmoid z_loss   # some of them

A case is one layer: y = x + MoELayer(RMSNorm(x)), with megatron-core's TopKRouter, SequentialMLP and SharedExpertMLP, on a
CPU (the names of torch.cuda are mapped by megatron_on_cpu.py). Its gradients are those of sum(y dy) plus `aux_scale` times
the router's losses, which the layer adds by itself. tests/data/megatron_moe/README.md says what a file holds.

Everything runs three times: in fp32; in fp64, where a mode replaces the fp32 that the router asks for by fp64; and in fp64
with the other dispatcher. The files hold fp64; the script fails where fp32 is further away than rounding explains, or where
the dispatchers differ. --megatron DIR takes a checkout of Megatron-LM in place of the package. Not part of CI.
"""

import argparse
import os
import pathlib
import sys

import fixture_file
import megatron_on_cpu

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/megatron_moe"
SEQ, BATCH, HIDDEN, HEADS, EXPERTS, FFN, SHARED = 9, 2, 4, 2, 8, 3, 5
AUX_SCALE = 0.75  # what Megatron's schedule sets: loss scale / micro-batches

# Name: flags of the layer. They are also the test's.
CASES = {
    # How tokens choose.
    "softmax_after": "--moe-router-topk 2",
    "softmax_before": "--moe-router-topk 3 --moe-router-pre-softmax",
    "softmax_before_top1": "--moe-router-topk 1 --moe-router-pre-softmax",
    "sigmoid": "--moe-router-topk 3 --moe-router-score-function sigmoid",
    "sigmoid_top1": "--moe-router-topk 1 --moe-router-score-function sigmoid",
    "scaled_after": "--moe-router-topk 2 --moe-router-topk-scaling-factor 2.5",
    "scaled_before": "--moe-router-topk 2 --moe-router-pre-softmax --moe-router-topk-scaling-factor 2.5",
    "groups_sigmoid": "--moe-router-topk 4 --moe-router-score-function sigmoid --moe-router-num-groups 4 "
    "--moe-router-group-topk 2 --moe-router-topk-scaling-factor 2.5",
    "groups_after": "--moe-router-topk 2 --moe-router-num-groups 4 --moe-router-group-topk 2",
    "groups_before": "--moe-router-topk 2 --moe-router-pre-softmax --moe-router-num-groups 2 --moe-router-group-topk 1",
    # How they are kept evenly spread.
    "aux_after": "--moe-router-topk 2 --moe-aux-loss-coeff 0.3",
    "aux_before": "--moe-router-topk 2 --moe-router-pre-softmax --moe-aux-loss-coeff 0.3",
    "aux_sigmoid": "--moe-router-topk 2 --moe-router-score-function sigmoid --moe-aux-loss-coeff 0.3",
    "aux_groups": "--moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-num-groups 4 "
    "--moe-router-group-topk 1 --moe-aux-loss-coeff 0.3",
    "seq_aux_after": "--moe-router-topk 2 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.3",
    "seq_aux_sigmoid": "--moe-router-topk 3 --moe-router-score-function sigmoid "
    "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.3",
    "z_loss": "--moe-router-topk 2 --moe-z-loss-coeff 0.2",
    "z_loss_sigmoid": "--moe-router-topk 2 --moe-router-score-function sigmoid --moe-z-loss-coeff 0.2",
    "all_losses": "--moe-router-topk 2 --moe-router-load-balancing-type aux_loss seq_aux_loss "
    "--moe-aux-loss-coeff 0.3 0.4 --moe-z-loss-coeff 0.2",
    # How many an expert takes.
    "capacity_probs": "--moe-router-topk 2 --moe-expert-capacity-factor 0.6 --moe-aux-loss-coeff 0.3",
    "capacity_position": "--moe-router-topk 2 --moe-expert-capacity-factor 0.6 --moe-token-drop-policy position",
    "capacity_probs_padded": "--moe-router-topk 2 --moe-expert-capacity-factor 0.6 --moe-pad-expert-input-to-capacity",
    "capacity_position_padded": "--moe-router-topk 2 --moe-expert-capacity-factor 0.6 --moe-token-drop-policy position "
    "--moe-pad-expert-input-to-capacity",
    "capacity_sigmoid": "--moe-router-topk 2 --moe-router-score-function sigmoid --moe-expert-capacity-factor 1.0",
    "capacity_ample": "--moe-router-topk 2 --moe-expert-capacity-factor 4.0 --moe-pad-expert-input-to-capacity",
    # What the experts are.
    "shared": f"--moe-router-topk 2 --moe-shared-expert-intermediate-size {SHARED}",
    "shared_gate": f"--moe-router-topk 2 --moe-shared-expert-intermediate-size {SHARED} --moe-shared-expert-gate",
    "squared_relu": f"--moe-router-topk 2 --squared-relu --moe-shared-expert-intermediate-size {SHARED}",
    "gelu": f"--moe-router-topk 2 --gelu --moe-shared-expert-intermediate-size {SHARED}",
    # Everything of DeepSeek-V3's layer but the bias.
    "deepseek": "--moe-router-topk 4 --moe-router-score-function sigmoid --moe-router-num-groups 4 --moe-router-group-topk 2 "
    "--moe-router-topk-scaling-factor 2.5 --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.3 "
    f"--moe-shared-expert-intermediate-size {SHARED}",
    # Three micro-batches of one step: counts are averaged over those so far.
    "global_aux": "--moe-router-topk 2 --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.3",
    "global_aux_sigmoid": "--moe-router-topk 2 --moe-router-score-function sigmoid "
    "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.3",
    # Two micro-batches with a bias, and the bias after the step.
    "expert_bias": "--moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
    "--moe-router-bias-update-rate 0.01 --moe-aux-loss-coeff 0.3",
    "expert_bias_groups": "--moe-router-topk 4 --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
    "--moe-router-bias-update-rate 0.01 --moe-router-num-groups 4 --moe-router-group-topk 2",
}
MICRO_BATCHES = {"global_aux": 3, "global_aux_sigmoid": 3, "expert_bias": 2, "expert_bias_groups": 2}


def parsed(flags):
    parser = argparse.ArgumentParser()
    number = lambda name, kind, default=None, **more: parser.add_argument(name, type=kind, default=default, **more)
    switch = lambda name: parser.add_argument(name, action="store_true")
    number("--moe-router-topk", int)
    switch("--moe-router-pre-softmax")
    number("--moe-router-score-function", str, "softmax")
    number("--moe-router-topk-scaling-factor", float)
    number("--moe-router-num-groups", int)
    number("--moe-router-group-topk", int)
    number("--moe-router-load-balancing-type", str, ["aux_loss"], nargs="+")
    number("--moe-aux-loss-coeff", float, [0.0], nargs="+")
    number("--moe-z-loss-coeff", float)
    number("--moe-expert-capacity-factor", float)
    number("--moe-token-drop-policy", str, "probs")
    switch("--moe-pad-expert-input-to-capacity")
    number("--moe-shared-expert-intermediate-size", int)
    switch("--moe-shared-expert-gate")
    switch("--moe-router-enable-expert-bias")
    number("--moe-router-bias-update-rate", float, 1e-3)
    switch("--squared-relu")
    switch("--gelu")
    return parser.parse_args(flags.split())


def config_of(given, dtype, dispatcher):
    import torch
    from megatron.core.activations import squared_relu
    from megatron.core.transformer.transformer_config import TransformerConfig

    fields = {name: value for name, value in vars(given).items() if name.startswith("moe_")}
    if len(given.moe_aux_loss_coeff) == 1:  # as Megatron's arguments have one of them
        fields["moe_router_load_balancing_type"] = given.moe_router_load_balancing_type[0]
        fields["moe_aux_loss_coeff"] = given.moe_aux_loss_coeff[0]
    gated = not given.squared_relu and not given.gelu
    activation = squared_relu if given.squared_relu else torch.nn.functional.gelu if given.gelu else torch.nn.functional.silu
    return TransformerConfig(
        num_layers=1, hidden_size=HIDDEN, num_attention_heads=HEADS, ffn_hidden_size=FFN, moe_ffn_hidden_size=FFN,
        num_moe_experts=EXPERTS, add_bias_linear=False, gated_linear_unit=gated, activation_func=activation,
        normalization="RMSNorm", bias_activation_fusion=False, params_dtype=dtype, use_cpu_initialization=True,
        moe_router_dtype="fp64" if dtype == torch.float64 else "fp32", moe_token_dispatcher_type=dispatcher, **fields)


def wide_mode():
    """Where Megatron's router asks for fp32, it gets fp64."""
    import torch

    class Wide(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if kwargs.get("dtype") == torch.float32:
                kwargs["dtype"] = torch.float64
            if function is torch.Tensor.float:
                function = torch.Tensor.double
            return function(*args, **kwargs)

    return Wide()


def stable_topk(topk):
    """torch.topk leaves open which of equal values are taken. --moe-token-drop-policy position takes the top of zeros and
    ones, and means the earliest tokens by them."""
    import torch

    def first(values, k, dim=-1, largest=True, sorted=True):
        if values.dtype != torch.int32:
            return topk(values, k, dim=dim, largest=largest, sorted=sorted)
        order = torch.argsort(values, dim=dim, descending=True, stable=True).narrow(dim, 0, k)
        return values.gather(dim, order), order

    return first


class Normals:
    """Random numbers that fp32 holds exactly."""

    def __init__(self, seed):
        import numpy

        self.random, self.float = numpy.random.default_rng(seed), numpy.float32

    def draw(self, shape, dtype, size=1.0, offset=0.0):
        import torch

        values = offset + size * self.random.standard_normal(tuple(shape))
        return torch.from_numpy(values.astype(self.float)).to(dtype)


def random_weights(layer, normals):
    """Large enough that choices are clear."""
    for name, parameter in layer.named_parameters():
        size = 0.2 if "norm" in name else 1.5 if "router" in name else 1.0 if "gate_weight" in name else 0.6
        parameter.data.copy_(normals.draw(parameter.shape, parameter.dtype, size, 1.0 if "norm" in name else 0.0))


def our_tensors(layer, take):
    """take(parameter) of all parameters by our names: experts one below the other."""
    import torch

    found, experts = {}, {}
    for name, parameter in layer.named_parameters():
        value = take(parameter).detach().clone()
        if ".local_experts." in name:
            before, behind = name.split(".local_experts.")
            index, rest = behind.split(".", 1)
            experts.setdefault(f"{before}.{rest}", {})[int(index)] = value
        else:
            found[name] = value
    for name, parts in experts.items():
        found[name] = torch.cat([parts[i] for i in range(EXPERTS)])
    return found


def keep_losses(kept):
    """The values of the router's losses without their coefficients go to kept[name], one a micro-batch. Megatron's own log
    has them in fp32."""
    from megatron.core.transformer.moe import router

    attach, z_loss = router.TopKRouter.attach_and_log_load_balancing_loss, router.z_loss_func

    def attached(self, activation, coefficient, loss, name, *args, **kwargs):
        kept.setdefault(name, []).append(loss.item() / coefficient)
        return attach(self, activation, coefficient, loss, name, *args, **kwargs)

    def z(logits, coefficient, *args, **kwargs):
        loss = z_loss(logits, coefficient, *args, **kwargs)
        kept.setdefault("z_loss", []).append(loss.item() / coefficient)
        return loss

    router.TopKRouter.attach_and_log_load_balancing_loss, router.z_loss_func = attached, z


LOSSES = {}


def compute(name, dtype, dispatcher):
    """{name: tensor} of everything that a file holds."""
    import torch
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.moe.moe_layer import MoELayer
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    config = config_of(parsed(CASES[name]), dtype, dispatcher)
    spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=False)
    layer = torch.nn.Module()
    layer.pre_mlp_layernorm = WrappedTorchNorm(config, HIDDEN, eps=1e-5).to(dtype)
    submodules = spec.keywords["submodules"] if hasattr(spec, "keywords") else spec.submodules  # newer ones are a call
    layer.mlp = MoELayer(config, submodules, layer_number=1).to(dtype)
    layer.mlp.set_layer_number(1)
    layer.train()
    normals = Normals(list(name.encode()))
    random_weights(layer, normals)
    batches = MICRO_BATCHES.get(name, 1)
    shape = (batches, SEQ, BATCH, HIDDEN)
    x, dy = normals.draw(shape, dtype).requires_grad_(), normals.draw(shape, dtype)
    if config.moe_router_enable_expert_bias:
        layer.mlp.router.expert_bias = normals.draw((EXPERTS,), dtype, 0.3)
        layer.mlp.router._maintain_float32_expert_bias = lambda: None  # fp64 here
    result = {"x": x.detach(), "dy": dy}
    result |= {f"weight.{key}": value for key, value in our_tensors(layer, lambda p: p).items()}

    LOSSES.clear()
    moe_utils.MoEAuxLossAutoScaler.main_loss_backward_scale = torch.tensor(AUX_SCALE, dtype=dtype)
    outputs = []
    for i in range(batches):
        branch, bias = layer.mlp(layer.pre_mlp_layernorm(x[i]))
        assert bias is None
        outputs.append(x[i] + branch)
        (outputs[-1] * dy[i]).sum().backward()
    result["y"] = torch.stack(outputs).detach()
    result |= {f"loss.{key}": torch.tensor(values, dtype=torch.float64) for key, values in LOSSES.items()}
    result["dx"] = x.grad
    result |= {f"grad.{key}": value for key, value in our_tensors(layer, lambda p: p.grad).items()}
    if config.moe_router_enable_expert_bias:
        router = layer.mlp.router
        result["bias"] = router.expert_bias.clone()
        result["tokens_per_expert"] = router.local_tokens_per_expert.clone()
        result["bias_after"] = moe_utils.get_updated_expert_bias(
            router.local_tokens_per_expert, router.expert_bias, config.moe_router_bias_update_rate)
    return result


def distance(a, b):
    """max |a - b| / max |b| over all tensors, and which is the worst."""
    worst, where = 0.0, ""
    for key in b:
        size = b[key].abs().max().item()
        value = (a[key].double() - b[key].double()).abs().max().item() / (size or 1.0)
        if value > worst:
            worst, where = value, key
    return worst, where


def make(name, out, version):
    import torch

    padded = "--moe-pad-expert-input-to-capacity" in CASES[name]
    # The all-gather dispatcher does not pad.
    narrow = compute(name, torch.float32, "alltoall")
    with wide_mode():
        wide = compute(name, torch.float64, "alltoall")
        other = wide if padded else compute(name, torch.float64, "allgather")
    rounding, where = distance(narrow, wide)
    assert rounding < 2e-5, f"{name}: fp32 is {rounding} away from fp64 in {where}"
    dispatch, where = distance(other, wide)
    assert dispatch < 1e-13, f"{name}: the dispatchers are {dispatch} apart in {where}"
    exact = lambda key: key in ("x", "dy", "bias") or key.startswith("weight.")
    stored = {key: value.float() if exact(key) and torch.equal(value.float().double(), value) else value.double()
              for key, value in wide.items()}
    shape = "--swiglu " if "--squared-relu" not in CASES[name] and "--gelu" not in CASES[name] else ""
    flags = (f"--num-layers 1 --hidden-size {HIDDEN} --num-attention-heads {HEADS} --ffn-hidden-size {FFN} "
             f"--seq-length {SEQ} --max-position-embeddings {SEQ} --micro-batch-size {BATCH} --vocab-size 8 --normalization RMSNorm --disable-bias-linear "
             f"{shape}--num-experts {EXPERTS} --moe-ffn-hidden-size {FFN} {CASES[name].replace(' --gelu', '')}")
    metadata = {"flags": flags, "aux_scale": repr(AUX_SCALE), "made_with": version, "fp32_distance": f"{rounding:.2e}"}
    size = fixture_file.write(out / f"{name}.safetensors", stored, metadata)
    print(f"{name:26} {size:6} bytes   fp32 {rounding:.1e}   dispatchers {dispatch:.1e}   "
          + "   ".join(f"{key[5:]} {value[0].item():.6f}" for key, value in wide.items() if key.startswith("loss.")), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", help="a checkout of Megatron-LM, in place of the package megatron-core")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("cases", nargs="*", help="all: " + " ".join(CASES))
    options = parser.parse_args()
    if options.megatron:
        sys.path.insert(0, os.path.abspath(options.megatron))
    megatron_on_cpu.stand_ins()
    import torch
    import torch._dynamo  # looks at the functions of torch.cuda, so before they change

    torch.set_num_threads(1)
    torch.compile = lambda function=None, **kwargs: function or (lambda inner: inner)
    megatron_on_cpu.map_torch_cuda()
    megatron_on_cpu.map_tensors()
    megatron_on_cpu.map_distributed()
    torch.topk = stable_topk(torch.topk)
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group(backend="gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    import megatron.core
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.moe import moe_utils

    # 0.16 defines the name only where Transformer Engine is installed, and reads it everywhere.
    moe_utils.te_general_gemm = None
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(1)
    keep_losses(LOSSES)
    options.out.mkdir(parents=True, exist_ok=True)
    version = f"megatron-core {megatron.core.__version__}, torch {torch.__version__.split('+')[0]}"
    print(version)
    for name in options.cases or CASES:
        make(name, options.out, version)


if __name__ == "__main__":
    main()
