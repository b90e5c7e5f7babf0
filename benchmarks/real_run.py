#!/usr/bin/env python3
"""The PyTorch side of benchmarks/real_run.sh, and the comparison of both sides.

    real_run.py peer --work FOLDER --metrics FILE [--device cuda] [--seconds N] [--eager] [--fp32]
    real_run.py order --work FOLDER --phalanx PROGRAM
    real_run.py compare RUN.json OURS.jsonl PEER.jsonl [--tolerance 0.002]

`peer` trains the model of FOLDER/run.json from the same initial weights on the same samples in the same order, and writes
a metrics file like that of `phalanx pretrain`. `order` compares its samples with those that the program shows. `compare` prints
a table, and fails if the validation losses at equal tokens differ by more than the tolerance.
"""
import argparse
import contextlib
import json
import math
import pathlib
import statistics
import struct
import subprocess
import sys
import time

import numpy as np

PEAK = 989.5e12  # FLOP/s of an H200 in bf16, without sparsity
SETTLED = 10     # iterations that rates leave out: the first ones compile, tune and fill caches


# --- the samples: Megatron's order, as docs/data.md describes it

def read_pair(prefix):
    raw = pathlib.Path(f"{prefix}.idx").read_bytes()
    version, code, count, _ = struct.unpack("<QBQQ", raw[9:34])
    assert raw[:9] == b"MMIDIDX\x00\x00" and version == 1 and code == 8, "not a token file of 16-bit ids"
    lengths = np.frombuffer(raw, "<i4", count, 34).astype(np.int64)
    return np.fromfile(f"{prefix}.bin", dtype="<u2"), lengths


class Samples:
    """Documents are repeated and shuffled, laid end to end and cut into samples, which are shuffled again. Sample j therefore
    has the tokens from j * s on, and one more, of the documents in their order."""

    def __init__(self, prefix, seq_length, num_samples, seed):
        tokens, lengths = read_pair(prefix)
        self.seq_length, per_epoch = seq_length, int(lengths.sum())
        epochs = -(-(num_samples * seq_length + 1) // per_epoch)
        before = ((epochs - 1) * per_epoch - 1) // seq_length
        # The last epoch is shuffled apart if less than four fifths of it are used.
        apart = epochs > 1 and num_samples - before < int(0.80 * ((per_epoch - 1) // seq_length))
        state = np.random.RandomState(seed)
        documents = np.arange(len(lengths), dtype=np.int32)
        order = []
        for repeats in ((epochs - 1, 1) if apart else (epochs,)):
            part = np.tile(documents, repeats)
            state.shuffle(part)
            order.append(part)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        self.stream = np.concatenate([tokens[starts[d]:starts[d + 1]] for d in np.concatenate(order)])
        total = (epochs * per_epoch - 1) // seq_length
        shuffle = np.arange(total, dtype=np.uint32)
        parts = np.split(shuffle, [before]) if apart else [shuffle]
        for part in parts:  # views: the shuffles are in place
            state.shuffle(part)
        self.shuffle = shuffle.astype(np.int64)

    def __len__(self):
        return len(self.shuffle)

    def starts(self, first, count):
        """Of samples `first` .. in training order; behind the last comes the first."""
        return self.shuffle[(first + np.arange(count)) % len(self.shuffle)] * self.seq_length


def num_samples(run, split):  # that a run asks for; the order depends on it
    batches = run["iters"] if split == "train" else (run["iters"] // run["eval_interval"] + 1) * run["eval_iters"]
    return batches * run["global_batch"]


def samples_of(run, split):
    return Samples(run[split], run["seq_length"], num_samples(run, split), run["seed"])


def show_order(options):
    run = json.loads((options.work / "run.json").read_text())
    for split in ("train", "valid"):
        samples, batch, asked = samples_of(run, split), run["global_batch"], num_samples(run, split)
        places = sorted({0, 1, batch - 1, asked // 3, asked // 2, asked - 1})
        for place in places:
            shown = json.loads(subprocess.run(
                [options.phalanx, "inspect", "data", run[split], "--split", "1", "--sample", str(place),
                 "--num-samples", str(asked), "--seq-length", str(run["seq_length"]), "--seed", str(run["seed"]), "--json",
                 "--tokenizer-type", "NullTokenizer", "--vocab-size", str(run["vocab"])],
                check=True, capture_output=True, text=True).stdout)
            start = samples.starts(place, 1)[0]
            ours = samples.stream[start:start + run["seq_length"] + 1].tolist()
            assert ours[:-1] == shown["tokens"] and ours[1:] == shown["labels"], f"{split}: sample {place} differs"
        print(f"{split}: {len(places)} samples out of {asked:,} are the same, up to place {places[-1]:,}; "
              f"{asked * run['seq_length'] / len(read_pair(run[split])[0]):.2f} epochs")


# --- the model

def read_safetensors(path):
    raw = np.memmap(path, np.uint8, "r")
    size = int(raw[:8].view("<u8")[0])
    header = json.loads(bytes(raw[8:8 + size]))
    tensors = {}
    for name, about in header.items():
        if name != "__metadata__":
            assert about["dtype"] == "F32", name
            begin, end = about["data_offsets"]
            tensors[name] = np.array(raw[8 + size + begin:8 + size + end]).view("<f4").reshape(about["shape"])
    return tensors


def make_model(torch, run):
    F, nn = torch.nn.functional, torch.nn
    heads = run["heads"]

    class Layer(nn.Module):
        def __init__(self, hidden, ffn):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.c_attn, self.c_proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.c_fc, self.c_out = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)

        def forward(self, x):  # [b, s, h]
            b, s, h = x.shape
            qkv = self.c_attn(self.ln_1(x)).view(b, s, 3, heads, h // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [b, n, s, d]
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(o.transpose(1, 2).reshape(b, s, h))
            return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(run["vocab"], run["hidden"])
            self.wpe = nn.Embedding(run["seq_length"], run["hidden"])
            self.h = nn.ModuleList(Layer(run["hidden"], run["ffn"]) for _ in range(run["layers"]))
            self.ln_f = nn.LayerNorm(run["hidden"])

        def forward(self, tokens, labels):  # [b, s] both
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for layer in self.h:
                x = layer(x)
            logits = F.linear(self.ln_f(x), self.wte.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    model = Gpt2()
    names = {"attn.c_attn": "c_attn", "attn.c_proj": "c_proj", "mlp.c_fc": "c_fc", "mlp.c_proj": "c_out"}
    state = {}
    for name, value in read_safetensors(pathlib.Path(run["weights"]) / "model.safetensors").items():
        name = name.removeprefix("transformer.")
        if name == "lm_head.weight":
            continue
        for theirs, mine in names.items():
            if theirs in name:
                name = name.replace(theirs, mine)
                value = value.T if value.ndim == 2 else value  # GPT-2 keeps its matrices [in, out]
        state[name] = torch.from_numpy(np.ascontiguousarray(value))
    model.load_state_dict(state)
    return model


def learning_rate(run, i):  # of iteration i, counted from 0: Megatron's warm-up begins at 0
    if i <= run["warmup"]:
        return run["lr"] * i / run["warmup"]
    share = (i - run["warmup"]) / (run["iters"] - run["warmup"])
    return run["min_lr"] + (run["lr"] - run["min_lr"]) * 0.5 * (math.cos(math.pi * share) + 1)


def flops_a_token(run):
    h, s = run["hidden"], run["seq_length"]
    linear = run["layers"] * (4 * h * h + 2 * h * run["ffn"]) + run["vocab"] * h
    return 6 * linear + 6 * run["layers"] * s * h


def train_peer(options):
    import torch

    run = json.loads((options.work / "run.json").read_text())
    started = time.monotonic()
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device(options.device)
    wide = options.fp32
    model = make_model(torch, run).to(device)
    if not wide:  # weights are rounded when they are loaded, and masters begin as the weights: as in ours
        model.bfloat16()
    masters = [p.detach().float().clone().requires_grad_(True) for p in model.parameters()]
    weights = list(model.parameters())
    decayed = [m for m in masters if m.ndim > 1]
    others = [m for m in masters if m.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": run["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
                                  lr=0.0, betas=(0.9, run["beta2"]), eps=1e-8, fused=device.type == "cuda")
    forward = model if options.eager else torch.compile(model)
    data = {split: samples_of(run, split) for split in ("train", "valid")}
    streams = {split: torch.from_numpy(samples.stream.view(np.int16)).to(device) for split, samples in data.items()}
    reach = torch.arange(run["seq_length"] + 1, device=device)

    def micro_batches(split, first):
        """The micro-batches of the global batch whose first sample is at this place of the order."""
        starts = torch.from_numpy(data[split].starts(first, run["global_batch"])).to(device)
        for part in starts.split(run["micro_batch"]):
            rows = streams[split][part[:, None] + reach].long() & 0xffff  # [b, s + 1]; ids are 16 bits without a sign
            yield rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    parts = run["global_batch"] // run["micro_batch"]

    def evaluate(first):
        total = 0.0
        with torch.no_grad():
            for i in range(run["eval_iters"]):
                total += sum(forward(*batch) for batch in micro_batches("valid", first + i * run["global_batch"])).item() / parts
        return total / run["eval_iters"]

    stack = contextlib.ExitStack()
    if device.type == "cuda":  # the faster ones, as in gpu_peer.py
        from torch.nn.attention import SDPBackend, sdpa_kernel
        stack.enter_context(sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]))
    out = open(options.metrics, "w", buffering=1)
    valid_samples = 0
    for i in range(run["iters"]):
        if options.seconds and time.monotonic() - started > options.seconds:
            print(f"stopped at iteration {i}: {options.seconds} s are over")
            break
        begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run, i)
        loss = torch.zeros((), device=device)
        for tokens, labels in micro_batches("train", i * run["global_batch"]):
            part = forward(tokens, labels)
            (part / parts).backward()
            loss += part.detach() / parts
            with torch.no_grad():  # sums of micro-batches in fp32, as ours
                for master, weight in zip(masters, weights):
                    if master.grad is None:
                        master.grad = weight.grad.float() if not wide else weight.grad.clone()
                    else:
                        master.grad += weight.grad
                    weight.grad = None
        norm = torch.nn.utils.clip_grad_norm_(masters, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        loss, norm = loss.item(), norm.item()  # waits for the step
        seconds = time.perf_counter() - begin
        tokens = run["global_batch"] * run["seq_length"]
        print(json.dumps({"iteration": i + 1, "consumed samples": (i + 1) * run["global_batch"], "elapsed ms": seconds * 1e3,
                          "learning rate": learning_rate(run, i + 1), "lm loss": loss, "grad norm": norm,
                          "tokens per second": tokens / seconds, "mfu": flops_a_token(run) * tokens / seconds / PEAK}), file=out)
        if (i + 1) % run["eval_interval"] == 0:
            value = evaluate(valid_samples)
            valid_samples += run["eval_iters"] * run["global_batch"]
            print(json.dumps({"iteration": i + 1, "consumed samples": (i + 1) * run["global_batch"], "validation": {"lm loss": value}}),
                  file=out)
            print(f"iteration {i + 1}: loss {loss:.4f}, validation {value:.4f}, {tokens / seconds:,.0f} tokens/s", flush=True)
    print(f"peer: torch {torch.__version__}, {'eager' if options.eager else 'compiled'}, {time.monotonic() - started:.0f} s in all"
          + (f", peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if device.type == "cuda" else ""))


# --- the comparison

def read_metrics(path):
    train, valid = {}, {}
    for line in open(path):
        row = json.loads(line)
        if "validation" in row:
            if "where" not in row:
                valid[row["iteration"]] = row["validation"]["lm loss"]
        else:
            train[row["iteration"]] = row
    return train, valid


def compare(options):
    run = json.loads(options.run.read_text())
    (ours, our_valid), (peer, peer_valid) = read_metrics(options.ours), read_metrics(options.peer)
    both = sorted(set(our_valid) & set(peer_valid))
    a_step = run["global_batch"] * run["seq_length"]
    print("| iteration | tokens | validation loss, ours | PyTorch | difference |\n|---|---|---|---|---|")
    for i in both:
        print(f"| {i} | {i * a_step / 1e6:.1f}M | {our_valid[i]:.4f} | {peer_valid[i]:.4f} | {100 * (our_valid[i] / peer_valid[i] - 1):+.3f}% |")
    steps = sorted(set(ours) & set(peer))
    first = [abs(ours[i]["lm loss"] / peer[i]["lm loss"] - 1) for i in steps[:5]]
    print(f"\nlosses of the first {len(first)} iterations differ by {max(first):.1e} at most; "
          f"learning rates by {max(abs(ours[i]['learning rate'] - peer[i]['learning rate']) for i in steps):.1e}")
    rates = []
    for name, rows in (("ours", ours), ("PyTorch", peer)):
        settled = [rows[i]["elapsed ms"] for i in sorted(rows)[SETTLED:]] or [row["elapsed ms"] for row in rows.values()]
        rate = a_step / statistics.median(settled) * 1e3
        rates.append(rate)
        print(f"{name}: {len(rows)} iterations, {rate:,.0f} tokens/s, MFU {100 * flops_a_token(run) * rate / PEAK:.1f}% (median iteration)")
    print(f"ratio {rates[0] / rates[1]:.3f}")
    # At the start, while losses fall fast, runs that differ by rounding only are further apart than later.
    last = both[-1]
    difference = abs(our_valid[last] / peer_valid[last] - 1)
    if difference > options.tolerance:
        sys.exit(f"the last validation losses differ by {100 * difference:.2f}%, more than {100 * options.tolerance:.2f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    peer = commands.add_parser("peer")
    peer.add_argument("--work", type=pathlib.Path, required=True)
    peer.add_argument("--metrics", required=True)
    peer.add_argument("--device", default="cuda")
    peer.add_argument("--seconds", type=float, default=0)
    peer.add_argument("--eager", action="store_true")
    peer.add_argument("--fp32", action="store_true")
    peer.set_defaults(call=train_peer)
    order = commands.add_parser("order")
    order.add_argument("--work", type=pathlib.Path, required=True)
    order.add_argument("--phalanx", required=True)
    order.set_defaults(call=show_order)
    table = commands.add_parser("compare")
    table.add_argument("run", type=pathlib.Path)
    table.add_argument("ours")
    table.add_argument("peer")
    table.add_argument("--tolerance", type=float, default=0.002)
    table.set_defaults(call=compare)
    options = parser.parse_args()
    options.call(options)


main()
