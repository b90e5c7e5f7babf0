#!/usr/bin/env python3
"""Trains small models with NVIDIA's Megatron-LM, saves them as --ckpt-format torch, and lets Phalanx go on from them.

  python scripts/check_megatron_legacy.py --megatron DIR --work FOLDER [--phalanx build/release/phalanx] [case ...]

For each case Megatron trains 15 iterations on CPUs (scripts/megatron_on_cpu.py) and saves after 5, 10 and 15. Then
  logits    Phalanx computes the fp32 logits of a prompt with the folder of iteration 5; Megatron computed them too
  losses    Phalanx goes on from iteration 5 to 15 on the same data; its ten losses beside Megatron's (which prints seven
            digits). The loss scales of fp16 runs must be the same, also where they skip iterations.
  weights   the weights of both after iteration 15, the biases of qkv apart
One line is printed a case. The exit code is 1 where an fp32 case differs by more than 1e-6 or a case fails; the others run
all the same. Not part of CI. Needs what megatron_on_cpu.py needs. Megatron's runs are kept in the work folder and not
repeated.

  python scripts/check_megatron_legacy.py --megatron DIR --work FOLDER --fixtures tests/data/megatron_legacy

makes the fixtures of the tests: smaller models, saved after iteration 3, with Megatron's logits then and after three
iterations more, and its losses between.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from megatron_on_cpu import check_all, versions

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = ("--num-layers 4 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --swiglu "
         "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
         "--position-embedding-type rope --ffn-hidden-size 64")
GPT2 = "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 64"
TRAINING = ("--seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 8 --vocab-size 96 "
            "--make-vocab-size-divisible-by 32 --train-iters 15 --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine "
            "--lr-warmup-iters 2 --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --hidden-dropout 0 "
            "--attention-dropout 0 --init-method-std 0.05 --split 100,0,0 --log-interval 1 --eval-interval 1000 "
            "--eval-iters 0 --save-interval 5")
TP2, PP2 = "--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 2"
VPP2 = PP2 + " --num-layers-per-virtual-pipeline-stage 1"
DO = "--use-distributed-optimizer"
# Name: ranks, model, flags of Megatron's run.
CASES = {
    "llama": (1, LLAMA, ""),
    "llama_tp2_do": (2, LLAMA, f"{TP2} {DO}"),
    "llama_vpp2": (2, LLAMA, VPP2),
    "llama_tp2_pp2": (4, LLAMA, f"{TP2} {PP2}"),
    "gpt2_tp2": (2, GPT2, TP2),
    "gpt2_pp2": (2, GPT2, PP2),
    "gpt2_pp2_do": (2, GPT2, f"{PP2} {DO}"),
    "gpt2_buckets": (2, GPT2, f"{DO} --overlap-grad-reduce --ddp-bucket-size 5000"),
    "gpt2_1p": (1, GPT2, "--apply-layernorm-1p"),
    "gpt2_decoupled": (1, GPT2, "--decoupled-lr 5e-4 --decoupled-min-lr 5e-5"),
    "llama_uneven": (2, LLAMA, f"{PP2} --decoder-first-pipeline-num-layers 1 {DO} --overlap-grad-reduce "
                               "--ddp-num-buckets 3 --qk-layernorm"),
    "llama_qk_decay": (1, LLAMA, "--qk-layernorm --apply-wd-to-qk-layernorm"),
    "llama_bf16": (1, LLAMA, "--bf16"),
    "llama_bf16_dp2_do": (2, LLAMA, f"--bf16 {DO}"),
    "gpt2_bf16_vpp2_do": (2, GPT2, f"--bf16 {VPP2} {DO}"),
    "llama_fp16": (1, LLAMA, "--fp16 --initial-loss-scale 65536"),
    "llama_fp16_do": (1, LLAMA, f"--fp16 {DO} --initial-loss-scale 32768 --loss-scale-window 4"),
    "gpt2_fp16_tp2": (2, GPT2, f"--fp16 {TP2} --initial-loss-scale 65536"),
}
# Smaller still, for the repository: name: ranks, flags. Rows of the vocabulary are padded by each.
SMALL = ("--seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 2 --vocab-size 21 "
         "--make-vocab-size-divisible-by 8 --train-iters 6 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine "
         "--lr-warmup-iters 1 --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --hidden-dropout 0 "
         "--attention-dropout 0 --init-method-std 0.1 --split 100,0,0 --log-interval 1 --eval-interval 1000 "
         "--eval-iters 0 --save-interval 3 --no-save-rng --norm-epsilon 1e-6")
FIXTURES = {
    "llama_bf16_tp2": (2, "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --group-query-attention "
                          "--num-query-groups 2 --swiglu --normalization RMSNorm --disable-bias-linear "
                          "--untie-embeddings-and-output-weights --position-embedding-type rope --ffn-hidden-size 8 "
                          f"--bf16 {TP2}"),
    "gpt2_vpp2_do": (2, f"--num-layers 4 --hidden-size 8 --num-attention-heads 2 --ffn-hidden-size 8 {VPP2} {DO}"),
    "gpt2_1p_buckets": (1, "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --ffn-hidden-size 8 "
                           f"--apply-layernorm-1p {DO} --overlap-grad-reduce --ddp-bucket-size 300"),
    "gpt2_fp16": (1, "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --ffn-hidden-size 8 --fp16 "
                     "--initial-loss-scale 4096 --loss-scale-window 2"),
}

# Flags that say how Megatron's ranks share the work, which is no matter of Phalanx's run.
LAYOUT = shlex.split(f"{TP2} {VPP2} {DO} --decoder-first-pipeline-num-layers --overlap-grad-reduce --ddp-bucket-size "
                     "--ddp-num-buckets")


def make_data(prefix, megatron, documents, vocabulary):
    """Token files with some structure, by Megatron's own builder; the last token ends a document."""
    if os.path.exists(prefix + ".idx"):
        return prefix
    program = (
        "import sys, typing\n"
        "typing.override = getattr(typing, 'override', lambda f: f)\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import numpy, torch\n"
        "from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder\n"
        "builder = IndexedDatasetBuilder(sys.argv[2] + '.bin', dtype=numpy.uint16)\n"
        "random = numpy.random.default_rng(7)\n"
        "documents, vocabulary = int(sys.argv[3]), int(sys.argv[4])\n"
        "for _ in range(documents):\n"
        "    count, start, step = int(random.integers(10, 60)), random.integers(0, 90), random.integers(1, 5)\n"
        "    document = [int((start + step * i + int(random.integers(0, 2))) % (vocabulary - 6)) for i in range(count)]\n"
        "    document.append(vocabulary - 1)\n"
        "    builder.add_document(torch.tensor(document), [len(document)])\n"
        "builder.finalize(sys.argv[2] + '.idx')\n")
    subprocess.run([sys.executable, "-c", program, megatron, prefix, str(documents), str(vocabulary)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return prefix


def run(command, log, **variables):
    with open(log, "w") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=dict(os.environ, **variables))
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\nfailed; see {log}")
    with open(log) as file:
        return file.read()


class Case:
    training = TRAINING
    every = 5  # iterations between two checkpoints

    def __init__(self, name, options, data):
        self.name = name
        self.ranks, self.model, self.flags = CASES[name]
        self.options, self.data = options, data
        self.folder = os.path.join(options.work, name)
        self.checkpoints = os.path.join(self.folder, "megatron")
        self.log = os.path.join(self.folder, "megatron.log")

    def megatron(self, flags, more, log, program=None, **variables):
        command = [sys.executable, os.path.join(HERE, "megatron_on_cpu.py"), "--megatron", self.options.megatron,
                   "--ranks", str(self.ranks)] + (["--program", program] if program else [])
        command += ["--"] + shlex.split(f"{self.training} {self.model} {flags}") + ["--data-path", self.data]
        command += ["--data-cache-path", os.path.join(self.options.work, "cache")] + more
        return run(command, os.path.join(self.folder, log), **variables)

    def train(self):
        os.makedirs(self.folder, exist_ok=True)
        if not os.path.exists(os.path.join(self.checkpoints, f"iter_{2 * self.every:07d}")):
            self.megatron(self.flags, ["--ckpt-format", "torch", "--save", self.checkpoints], "megatron.log")
        return self.logits_at(self.every)

    def logits_at(self, iteration):
        logits = os.path.join(self.folder, f"logits_{iteration}.safetensors")
        if not os.path.exists(logits):
            # Also 16-bit weights compute in fp32 here, as they do in `convert check`.
            more = ["--ckpt-format", "torch", "--load", self.checkpoints, "--ckpt-step", str(iteration)]
            self.megatron(re.sub("--bf16|--fp16", "", self.flags), more, "logits.log",
                          os.path.join(HERE, "megatron_logits.py"), LOGITS_FILE=logits)
        return logits

    def losses(self):
        with open(self.log) as file:
            text = file.read()
        # An iteration that the loss scale made skip its update has none, or 0.
        found = {int(i): float(x) for i, x in re.findall(r"iteration +(\d+)/ .*?lm loss: (\S+)", text)}
        return {i: loss for i, loss in found.items() if loss != 0}

    def loss_scales(self, log):
        with open(log) as file:
            return dict(re.findall(r"iteration +(\d+)/ .*?loss scale: (\S+)", file.read()))

    def logits_difference(self, logits):
        text = run([self.options.phalanx, "convert", "check", "--megatron", self.checkpoints, "--ckpt-step", "5",
                    "--logits", logits, "--tolerance", "1e9"], os.path.join(self.folder, "check_logits.log"))
        return float(re.search(r"largest difference (\S+)", text).group(1))

    def go_on(self):
        """Phalanx's losses of iterations 6 to 15, and the largest difference of weights behind them."""
        out = os.path.join(self.folder, "phalanx")
        shutil.rmtree(out, ignore_errors=True)
        metrics = os.path.join(self.folder, "metrics.jsonl")
        flags, words = [], shlex.split(self.flags)
        for i, word in enumerate(words):
            if word not in LAYOUT and not (i > 0 and words[i - 1] in LAYOUT and not word.startswith("--")):
                flags.append(word)
        # Megatron's loss counts the padding of the vocabulary among the tokens, ours does not: here it is made of tokens.
        rows = ["--vocab-size", "128" if TP2 in self.flags else "96"]
        run([self.options.phalanx, "pretrain"] + shlex.split(f"{TRAINING} {self.model}") + flags + rows +
            ["--no-bias-gelu-fusion"] +
            ["--tokenizer-type", "NullTokenizer", "--data-path", self.data, "--load", self.checkpoints, "--ckpt-step", "5",
             "--save", out, "--metrics-file", metrics], os.path.join(self.folder, "phalanx.log"))
        losses = {}
        with open(metrics) as file:
            for line in file:
                entry = json.loads(line)
                if "lm loss" in entry:
                    losses[entry["iteration"]] = entry["lm loss"]
        path = os.path.join(self.folder, "check_weights.log")
        with open(path, "w") as file:  # exit code 1 where they differ at all
            done = subprocess.run([self.options.phalanx, "convert", "check", "--megatron", self.checkpoints, "--native", out,
                                   "--tensors-only"] + rows, stdout=file, stderr=subprocess.STDOUT)
        with open(path) as file:
            text = file.read()
        compared = re.search(r"^tensors: \d+ of (\d+) are equal", text, re.MULTILINE)
        if done.returncode not in (0, 1) or compared is None or int(compared.group(1)) == 0:
            raise RuntimeError(f"{self.name}: convert check did not compare the weights (exit code {done.returncode}); see {path}")
        # A tensor that one side lacks, or has in another shape, has no difference of numbers.
        strange = re.findall(r"^\S+ differs: (?!\d+ of \d+ elements).*$", text, re.MULTILINE)
        if strange:
            raise RuntimeError(f"{self.name}: {strange[0]}")
        found = re.findall(r"^(\S+) differs: .*by up to (\S+)$", text, re.MULTILINE)
        # The largest come first. Attention does not depend on the bias of k: its gradient is rounding, which Adam blows up.
        of = lambda is_bias: max([float(x) for name, x in found if name.endswith("linear_qkv.bias") == is_bias], default=0)
        return losses, of(False), of(True)

    def check(self):
        logits = self.logits_difference(self.train())
        ours, weights, bias = self.go_on()
        theirs = self.losses()
        compared = [i for i in range(6, 16) if i in theirs]
        if not compared:
            raise RuntimeError(f"{self.name}: {self.log} has no losses of iterations 6 to 15")
        loss = max(abs(ours[i] - theirs[i]) / abs(theirs[i]) for i in compared)
        scales, their_scales = self.loss_scales(os.path.join(self.folder, "phalanx.log")), self.loss_scales(self.log)
        # A run without one may print none.
        expected = {str(i) for i in range(6, 16)} if "--fp16" in self.flags else set()
        same_scales = expected <= scales.keys() and scales.items() <= their_scales.items()
        exact = not re.search("--bf16|--fp16", self.flags)
        good = logits <= 1e-6 and same_scales and (not exact or (loss <= 1e-6 and weights <= 1e-6))
        print(f"{self.name:20} logits {logits:8.1e}   losses of 10 steps {loss:8.1e} (relative)   weights {weights:8.1e}   "
              f"bias of qkv {bias:8.1e}   {'good' if good else 'DIFFERS'}", flush=True)
        return good


class Fixture(Case):
    training = SMALL
    every = 3

    def __init__(self, name, options, data):
        self.name = name
        (self.ranks, self.flags), self.model = FIXTURES[name], ""
        self.options, self.data = options, data
        self.folder = os.path.join(options.work, "fixture_" + name)
        self.checkpoints = os.path.join(self.folder, "megatron")
        self.log = os.path.join(self.folder, "megatron.log")

    def make(self, out):
        before, after = self.train(), self.logits_at(6)
        folder = os.path.join(out, self.name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(os.path.join(self.checkpoints, "iter_0000003"), os.path.join(folder, "iter_0000003"))
        with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write("3")
        shutil.copy(before, os.path.join(folder, "logits_3.safetensors"))
        shutil.copy(after, os.path.join(folder, "logits_6.safetensors"))
        theirs = self.losses()
        with open(os.path.join(folder, "run.json"), "w") as file:
            json.dump({"flags": f"{SMALL} {self.flags}", "losses": [theirs[i] for i in range(4, 7)]}, file, indent=1)
            file.write("\n")
        print(f"{self.name}: written", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron", required=True, help="a checkout of Megatron-LM")
    parser.add_argument("--work", required=True, help="folder for data, checkpoints and logs")
    parser.add_argument("--phalanx", default=os.path.join(HERE, "..", "build", "release", "phalanx"))
    parser.add_argument("--fixtures", help="folder to write the fixtures of the tests to")
    parser.add_argument("cases", nargs="*", metavar="case", help="all: " + " ".join(CASES))
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    unknown = [name for name in options.cases if name not in (FIXTURES if options.fixtures else CASES)]
    if unknown:
        parser.error("no such case: " + " ".join(unknown))
    print(versions(options.megatron), flush=True)
    if options.fixtures:
        os.makedirs(options.fixtures, exist_ok=True)
        data = make_data(os.path.join(options.fixtures, "tokens"), options.megatron, 20, 21)
        for name in options.cases or FIXTURES:
            Fixture(name, options, data).make(options.fixtures)
        return
    data = make_data(os.path.join(options.work, "tokens"), options.megatron, 400, 96)
    sys.exit(0 if check_all([Case(name, options, data) for name in options.cases or CASES]) else 1)


if __name__ == "__main__":
    main()
