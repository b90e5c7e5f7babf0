#!/usr/bin/env python3
"""Trains small models with NVIDIA's Megatron-LM, saves them as torch_dist, and compares both directions with Phalanx.

  python scripts/check_megatron.py --megatron DIR --work FOLDER [--phalanx build/release/phalanx] [case ...]

For each case Megatron trains 15 iterations on CPUs (scripts/megatron_on_cpu.py) and saves after 5, 10 and 15. Then
  logits    Phalanx computes the fp32 logits of a prompt with iteration 5, by Megatron's folder and by its import; Megatron
            computed them too
  import    `phalanx convert import` takes iteration 5, and `phalanx pretrain` goes on to 15: its ten losses beside
            Megatron's
  direct    the same with --load of Megatron's folder, without an import; on two ranks where Megatron has its experts
            on two
  export    `phalanx convert export --optimizer` writes what was imported; Megatron loads it with its default strictness
            and its optimizer and goes on to 15: its ten losses beside those of its own run
Without names of cases all run. Megatron-FSDP's (names with fsdp, --ckpt-format fsdp_dtensor) take the same way, but for the
logits: its model cannot be made without its ranks.
Largest differences are printed, a line a case. The exit code is 1 where an fp32 case differs by more than 1e-6 or a case
fails; the others run all the same. Numbers of 16 bits are rounded after every product, and by other orders of sums
differently: their differences are only shown.
Not part of CI. Needs what megatron_on_cpu.py needs. Megatron's runs are kept in the work folder and not repeated.

  python scripts/check_megatron.py --megatron DIR --work FOLDER --fixtures tests/data/megatron

makes the fixtures of the tests: smaller models, saved after iteration 3, with Megatron's logits then and its losses of
the three iterations that follow.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys

from megatron_on_cpu import check_all, versions

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-6

LLAMA = ("--num-layers 2 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --swiglu "
         "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
         "--position-embedding-type rope --ffn-hidden-size 64")
GPT2 = "--num-layers 2 --hidden-size 32 --num-attention-heads 4"
MOE = LLAMA + (" --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 24 --moe-aux-loss-coeff 1e-2 "
               "--moe-z-loss-coeff 1e-3 --moe-token-dispatcher-type alltoall")
SHARED = (" --moe-router-score-function sigmoid --moe-router-topk-scaling-factor 1.5 --moe-shared-expert-intermediate-size 20 "
          "--moe-router-load-balancing-type seq_aux_loss")
BIAS = " --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 1e-2"
TRAINING = ("--seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 4 --vocab-size 96 "
            "--make-vocab-size-divisible-by 16 --train-iters 15 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine "
            "--lr-warmup-iters 2 --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --hidden-dropout 0 "
            "--attention-dropout 0 --init-method-std 0.05 --split 100,0,0 --log-interval 1 --eval-interval 1000 "
            "--eval-iters 0 --save-interval 5")
TP2, PP2 = "--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 2"
MTP = " --mtp-num-layers 2 --mtp-loss-scaling-factor 0.3"
ROPE = " --position-embedding-type rope"
DP = "--use-distributed-optimizer"  # dp_reshardable, Megatron's default
FULL = DP + " --dist-ckpt-optim-fully-reshardable"
EP2 = "--expert-model-parallel-size 2"
# gloo has no sums that multiply first.
FSDP = ("--use-megatron-fsdp --use-distributed-optimizer --ckpt-format fsdp_dtensor --no-gradient-reduce-div-fusion "
        "--data-parallel-sharding-strategy optim_grads_params")
BUCKETS = "--overlap-grad-reduce --ddp-bucket-size 5000"

# Name: ranks, model, flags of the model, flags of Megatron's ranks.
CASES = {}
for model, flags in (("llama", LLAMA), ("gpt2", GPT2)):
    for optimizer, how in (("plain", ""), ("full", FULL), ("dp", DP)):
        CASES[f"{model}_{optimizer}"] = (1, flags, how)
        CASES[f"{model}_tp2_{optimizer}"] = (2, flags, f"{how} {TP2}")
CASES.update({
    "gpt2_dp2_buckets": (2, GPT2, f"{DP} {BUCKETS}"),
    "gpt2_tp2_pp2_dp": (4, GPT2, f"{DP} {TP2} {PP2}"),
    "llama_pp2_full": (2, LLAMA, f"{FULL} {PP2}"),
    "gpt2_vpp2_dp": (2, GPT2 + " --num-layers 4", f"{DP} {PP2} --num-layers-per-virtual-pipeline-stage 1"),
    "gpt2_1p_dp": (1, GPT2 + " --apply-layernorm-1p", DP),
    "gpt2_decoupled_full": (1, GPT2 + " --decoupled-lr 5e-3 --decoupled-min-lr 5e-4", FULL),
    "moe_full": (1, MOE, FULL),
    "moe_ep2_full": (2, MOE, f"{FULL} {EP2}"),
    "moe_plain": (1, MOE, ""),
    "moe_ep2_plain": (2, MOE, EP2),
    "moe_dp": (1, MOE, DP),
    "moe_ep2_dp": (2, MOE, f"{DP} {EP2}"),
    "moe_shared_ep2_full": (2, MOE + SHARED, f"{FULL} {EP2}"),
    "moe_freq_ep2_full": (2, MOE + SHARED + " --num-layers 3 --moe-layer-freq [0,1,1]", f"{FULL} {EP2}"),
    "moe_bias_full": (1, MOE + BIAS, FULL),
    "moe_bias_ep2_dp": (2, MOE + BIAS, f"{DP} {EP2}"),
    # With TP, experts need sequence parallelism, for which Megatron has no norm on a CPU.
    "moe_pp2_ep2_dp": (4, MOE + SHARED, f"{DP} {PP2} {EP2}"),
    "moe_bf16_dp": (1, MOE + " --bf16 --moe-router-dtype fp32", DP),
    "gpt2_mtp_full": (1, GPT2 + MTP + ROPE, FULL),
    "llama_mtp_dp": (1, LLAMA + MTP, DP),
    "moe_mtp_ep2_full": (2, MOE + SHARED + MTP, f"{FULL} {EP2}"),
    "llama_mtp_pp2_full": (2, LLAMA + MTP, f"{FULL} {PP2}"),
    "llama_bf16_dp": (1, LLAMA + " --bf16", DP),
    "llama_bf16_tp2_plain": (2, LLAMA + " --bf16", TP2),
    "llama_fp16_dp": (1, LLAMA + " --fp16 --initial-loss-scale 4096", DP),
    "gpt2_fp16_full": (1, GPT2 + " --fp16 --initial-loss-scale 65536", FULL),
    "gpt2_fsdp2": (2, GPT2, FSDP),
    "gpt2_fsdp2_grads": (2, GPT2, FSDP.replace("optim_grads_params", "optim_grads")),
    "llama_bf16_fsdp2": (2, LLAMA + " --bf16", FSDP),  # in fp32 Megatron cannot save the halves of SwiGLU
    "llama_bf16_fsdp4": (4, LLAMA + " --bf16 --micro-batch-size 1", FSDP),  # 4 samples for 4 ranks
})

SMALL = ("--seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 2 --vocab-size 24 "
         "--make-vocab-size-divisible-by 8 --train-iters 6 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine "
         "--lr-warmup-iters 1 --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --hidden-dropout 0 "
         "--attention-dropout 0 --init-method-std 0.1 --split 100,0,0 --log-interval 1 --eval-interval 1000 "
         "--eval-iters 0 --save-interval 3 --norm-epsilon 1e-6")
TINY_LLAMA = ("--num-layers 1 --hidden-size 8 --num-attention-heads 2 --group-query-attention --num-query-groups 2 "
              "--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
              "--position-embedding-type rope --ffn-hidden-size 8")
TINY_GPT2 = "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --ffn-hidden-size 8"
TINY_MOE = TINY_LLAMA + (" --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 4 --moe-aux-loss-coeff 1e-2 "
                         "--moe-token-dispatcher-type alltoall")
TINY_SHARED = " --moe-router-score-function sigmoid --moe-shared-expert-intermediate-size 4 --moe-layer-freq [0,1]"
FIXTURES = {
    "llama_tp2_dp": (2, TINY_LLAMA + " --vocab-size 32", f"{DP} {TP2}"),
    "gpt2_pp2_dp": (2, TINY_GPT2 + " --num-layers 2", f"{DP} {PP2}"),
    "gpt2_full": (1, TINY_GPT2, FULL),
    "llama_bf16_plain": (1, TINY_LLAMA + " --bf16", ""),
    "gpt2_bf16_dp": (1, TINY_GPT2 + " --bf16", DP),
    "moe_ep2_dp": (2, TINY_MOE, f"{DP} {EP2}"),
    "moe_freq_ep2_full": (2, TINY_MOE + TINY_SHARED + " --num-layers 2", f"{FULL} {EP2}"),
    "moe_bias_ep2_dp": (2, TINY_MOE + BIAS, f"{DP} {EP2}"),
    "moe_bf16_dp": (1, TINY_MOE + " --bf16", DP),
    "mtp_dp": (1, TINY_LLAMA + MTP, DP),
    "gpt2_fsdp2": (2, TINY_GPT2, FSDP),
    "llama_bf16_fsdp2": (2, TINY_LLAMA + " --bf16 --num-layers 2", FSDP),
}


def make_data(prefix, documents, vocabulary):
    """Token files (.bin and .idx) with some structure; the last token ends a document."""
    import numpy

    random = numpy.random.default_rng(7)
    texts = []
    for _ in range(documents):
        count, start, step = int(random.integers(10, 60)), int(random.integers(0, 90)), int(random.integers(1, 5))
        text = [(start + step * i + int(random.integers(0, 2))) % (vocabulary - 6) for i in range(count)]
        texts.append(numpy.array(text + [vocabulary - 1], dtype=numpy.uint16))
    sizes = numpy.array([len(text) for text in texts], dtype=numpy.int32)
    begins = 2 * numpy.concatenate([[0], numpy.cumsum(sizes)[:-1]]).astype(numpy.int64)
    with open(prefix + ".bin", "wb") as file:
        file.write(b"".join(text.tobytes() for text in texts))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(texts), len(texts) + 1))
        file.write(sizes.tobytes() + begins.tobytes() + numpy.arange(len(texts) + 1, dtype=numpy.int64).tobytes())
    return prefix


def run(command, log, folder=None, **variables):
    with open(log, "w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder, env=dict(os.environ, **variables))
    with open(log) as file:
        text = file.read()
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}\nfailed; {log} ends with\n{text[-800:].strip()}")
    return text


def lines_of(path):
    with open(path) as file:
        return [json.loads(line)["lm loss"] for line in file]


def largest(a, b):
    if len(a) != len(b) or not a:
        raise RuntimeError(f"one side has {len(a)} losses, the other {len(b)}")
    return max(abs(x - y) for x, y in zip(a, b))


class Case:
    training = TRAINING
    every, last = 5, 15  # iterations between two checkpoints, and of the run

    def __init__(self, name, case, options, data):
        self.name, self.options, self.data = name, options, data
        self.ranks, self.model, self.ranks_flags = case
        self.folder = os.path.join(options.work, name)
        os.makedirs(self.folder, exist_ok=True)
        self.checkpoints = self.at("megatron")
        # Where Megatron has experts on several ranks, so has Phalanx after a direct load.
        self.experts = shlex.split(EP2) if EP2 in self.ranks_flags else []
        self.fsdp = "fsdp" in self.ranks_flags
        self.fp32 = "--bf16" not in self.model and "--fp16" not in self.model

    def at(self, name):
        return os.path.join(self.folder, name)

    def megatron(self, more, log, model=None, program=None, losses=None, **variables):
        command = [sys.executable, os.path.join(HERE, "megatron_on_cpu.py"), "--megatron", self.options.megatron,
                   "--ranks", str(self.ranks), "--keep-fusions"]
        command += ["--program", program] if program else []
        command += ["--losses", losses] if losses else []
        flags = f"--ckpt-format torch_dist {self.training} {self.model if model is None else model} {self.ranks_flags}"
        # Paths from the folder of the case on: they are kept in checkpoints.
        command += ["--"] + shlex.split(flags) + ["--data-path", os.path.relpath(self.data, self.folder),
                                                  "--data-cache-path", "../cache"]
        if self.fsdp:
            variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
        return run(command + more, self.at(log), folder=self.folder, **variables)

    def train(self):
        """Megatron's losses of the iterations behind the first checkpoint."""
        losses = self.at("megatron.losses")
        if not os.path.exists(os.path.join(self.checkpoints, f"iter_{self.last:07d}")):
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            if os.path.exists(losses):
                os.remove(losses)
            self.megatron(["--save", "megatron"], "megatron.log", losses=losses)
        return lines_of(losses)[self.every :]

    def logits(self):
        path = self.at("logits.safetensors")
        if not os.path.exists(path):
            # Also 16-bit weights compute in fp32 here, as they do in `convert check`.
            model = re.sub(r"--bf16|--fp16", "", self.model)
            self.megatron(["--load", "megatron", "--ckpt-step", str(self.every)], "logits.log", model=model,
                          program=os.path.join(HERE, "megatron_logits.py"), LOGITS_FILE=path)
        return path

    def phalanx(self, words, log):
        return run([self.options.phalanx] + words, self.at(log))

    def logits_difference(self, native):
        """The larger one of Megatron's folder and of its import."""
        sides = {"check": ["--megatron", self.checkpoints, "--ckpt-step", str(self.every)], "check_import": ["--native", native]}
        found = []
        for log, side in sides.items():
            words = ["convert", "check"] + side + ["--logits", self.logits(), "--tolerance", "1e9"]
            text = self.phalanx(words, log + ".log")
            found.append(float(re.search(r"against the file's logits:.* largest difference ([0-9.e+-]+)", text).group(1)))
        return max(found)

    def go_on(self, words, name):
        metrics = self.at(name + ".metrics")
        if os.path.exists(metrics):
            os.remove(metrics)
        flags = shlex.split(f"{self.training} {self.model}")
        self.phalanx(["pretrain"] + flags + ["--tokenizer-type", "NullTokenizer", "--data-path", self.data, "--threads", "1",
                      "--data-cache-path", os.path.join(self.options.work, "cache"), "--metrics-file", metrics] + words,
                     name + ".log")
        return lines_of(metrics)

    def back(self, native, name):
        """Megatron's losses from what Phalanx exported."""
        out, losses = self.at(name), self.at(name + ".losses")
        shutil.rmtree(out, ignore_errors=True)
        if os.path.exists(losses):
            os.remove(losses)
        form = "--fsdp-dtensor" if self.fsdp else "--torch-dist"
        words = ["convert", "export", "--native", native, form, out, "--optimizer"]
        self.phalanx(words + self.experts, name + "_export.log")
        self.megatron(["--load", name] + (["--no-load-rng"] if self.fsdp else []), name + ".log", losses=losses)
        return lines_of(losses)

    def train_on(self, native):
        """A checkpoint of iteration 10, that Phalanx trained from the import of 5."""
        saved = self.at("native_trained")
        shutil.rmtree(saved, ignore_errors=True)
        self.go_on(["--load", native, "--exit-interval", str(2 * self.every), "--save", saved], "train_on")
        return saved

    def check(self):
        theirs = self.train()
        native = self.at("native")
        shutil.rmtree(native, ignore_errors=True)
        step = ["--ckpt-step", str(self.every)]
        ranks = self.experts + ["--local-ranks", "2"] if self.experts else []
        self.phalanx(["convert", "import", "--megatron", self.checkpoints, "--native", native] + step, "import.log")
        found = {"logits": 0 if self.fsdp else self.logits_difference(native),
                 "import": largest(self.go_on(["--load", native], "imported"), theirs),
                 "direct": largest(self.go_on(["--load", self.checkpoints] + step + ranks, "direct"), theirs),
                 "export": largest(self.back(native, "exported"), theirs),
                 "trained": largest(self.back(self.train_on(native), "trained"), theirs[self.every :])}
        good = not self.fp32 or all(value <= TOLERANCE for value in found.values())
        shown = "   ".join(f"{name} {value:7.1e}" for name, value in found.items())
        print(f"{self.name:22} {shown}   {('good' if self.fp32 else '16 bits') if good else 'DIFFERS'}", flush=True)
        return good


class Fixture(Case):
    training = SMALL
    every, last = 3, 6

    def make(self, out):
        theirs = self.train()
        folder = os.path.join(out, self.name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(self.checkpoints, "iter_0000003"), os.path.join(folder, "iter_0000003"))
        with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write("3")
        if not self.fsdp:
            shutil.copy(self.logits(), os.path.join(folder, "logits.safetensors"))
        with open(os.path.join(folder, "run.json"), "w") as file:
            json.dump({"flags": f"{SMALL} {self.model}", "losses": theirs}, file, indent=1)
            file.write("\n")
        print(f"{self.name}: written", flush=True)

    def megatron(self, more, log, **others):
        return super().megatron(more + ["--no-save-rng"], log, **others)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", default=os.environ.get("MEGATRON_LM"), help="a checkout of Megatron-LM")
    parser.add_argument("--work", required=True, help="folder for data, checkpoints and logs")
    parser.add_argument("--phalanx", default=os.path.join(HERE, "..", "build", "release", "phalanx"))
    parser.add_argument("--fixtures", help="folder to write the fixtures of the tests to")
    parser.add_argument("cases", nargs="*", metavar="case", help="all: " + " ".join(CASES))
    options = parser.parse_args()
    options.work, options.phalanx = os.path.abspath(options.work), os.path.abspath(options.phalanx)
    if not options.megatron:
        parser.error("--megatron or the variable MEGATRON_LM says where Megatron-LM lies")
    options.megatron = os.path.abspath(options.megatron)
    unknown = [name for name in options.cases if name not in (FIXTURES if options.fixtures else CASES)]
    if unknown:
        parser.error("no such case: " + " ".join(unknown))
    print(versions(options.megatron), flush=True)
    os.makedirs(options.work, exist_ok=True)
    if options.fixtures:
        os.makedirs(options.fixtures, exist_ok=True)
        data = make_data(os.path.join(options.work, "tokens"), 20, 24)
        for kind in (".bin", ".idx"):
            shutil.copy(data + kind, os.path.join(options.fixtures, "tokens" + kind))
        for name in options.cases or FIXTURES:
            Fixture(name, FIXTURES[name], options, data).make(options.fixtures)
        return
    data = make_data(os.path.join(options.work, "tokens"), 400, 96)
    sys.exit(0 if check_all([Case(name, CASES[name], options, data) for name in options.cases or CASES]) else 1)


if __name__ == "__main__":
    main()
