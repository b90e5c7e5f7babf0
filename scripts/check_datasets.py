#!/usr/bin/env python3
"""Megatron's datasets once more, with NumPy and PyTorch: an oracle that shares no code with ours.

  check_datasets.py fixture            writes tests/data/datasets/cases.jsonl, which data_test reads
  check_datasets.py cases FILE COUNT   writes COUNT random cases for PHX_DATASET_CASES=FILE data_test
  check_datasets.py long FILE          writes a case of torch.randperm of 214,748,365 numbers (gigabytes)
  check_datasets.py program PHALANX    runs the program on files written here, and reads its files
"""
import gzip
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np

CODES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}


# --- pairs of files

def write_pair(prefix, documents, dtype=np.uint16):
    """documents: lists of sequences, which are lists of tokens."""
    sequences = [sequence for document in documents for sequence in document]
    lengths = np.array([len(s) for s in sequences], dtype="<i4")
    sizes = lengths.astype("<i8") * np.dtype(dtype).itemsize
    pointers = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype("<i8") if len(sizes) else sizes
    starts = np.cumsum([0] + [len(document) for document in documents]).astype("<i8")
    code = next(code for code, kind in CODES.items() if kind == dtype)
    with open(prefix + ".bin", "wb") as out:
        for sequence in sequences:
            out.write(np.array(sequence, dtype=dtype).tobytes())
    with open(prefix + ".idx", "wb") as out:
        out.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(starts)))
        out.write(lengths.tobytes() + pointers.tobytes() + starts.tobytes())


def read_pair(prefix):
    raw = open(prefix + ".idx", "rb").read()
    assert raw[:9] == b"MMIDIDX\x00\x00", "magic"
    version, code, count, entries = struct.unpack("<QBQQ", raw[9:34])
    assert version == 1 and len(raw) == 34 + 12 * count + 8 * entries, (version, len(raw))
    lengths = np.frombuffer(raw, "<i4", count, 34)
    pointers = np.frombuffer(raw, "<i8", count, 34 + 4 * count)
    starts = np.frombuffer(raw, "<i8", entries, 34 + 12 * count)
    tokens = np.fromfile(prefix + ".bin", dtype=CODES[code])
    size = np.dtype(CODES[code]).itemsize
    assert starts[0] == 0 and starts[-1] == count and (np.diff(starts) >= 0).all()
    assert (pointers == np.concatenate([[0], np.cumsum(lengths.astype("i8"))])[:-1] * size).all()
    assert lengths.astype("i8").sum() == len(tokens)
    sequences = [tokens[p // size:p // size + n].tolist() for p, n in zip(pointers, lengths)]
    return CODES[code], [sequences[a:b] for a, b in zip(starts[:-1], starts[1:])]


# --- indices

def split_shares(text):
    shares = [float(number) for number in re.findall(r"[.0-9]+", text)]
    shares += [0.0] * (3 - len(shares))
    return (np.array(shares) / np.sum(np.array(shares))).tolist()


def split_range(shares, k, count):
    bounds = [0.0]
    for share in shares:
        bounds.append(bounds[-1] + share)
    if not bounds[k] < bounds[k + 1]:
        return None
    return int(round(bounds[k] * count)), int(round(bounds[k + 1] * count))


def gpt_index(lens, documents, seq_length, num_samples, seed):
    lens = np.asarray(lens)
    per_epoch = int(lens[documents].astype(np.int64).sum())
    epochs = 1
    if num_samples is not None:
        while epochs * per_epoch < num_samples * seq_length + 1:
            epochs += 1
    apart = False
    before = 0
    if epochs > 1:
        before = ((epochs - 1) * per_epoch - 1) // seq_length
        last = num_samples - before
        one = (per_epoch - 1) // seq_length
        assert 0 <= last <= one + 1
        apart = last < int(0.80 * one)
    state = np.random.RandomState(seed)
    if apart:
        first = np.tile(np.asarray(documents, dtype=np.int32), epochs - 1)
        state.shuffle(first)
        second = np.array(documents, dtype=np.int32)
        state.shuffle(second)
        order = np.concatenate([first, second])
    else:
        order = np.tile(np.asarray(documents, dtype=np.int32), epochs)
        state.shuffle(order)
    total = (epochs * per_epoch - 1) // seq_length
    rows = [(0, 0)]
    position, offset = 0, 0
    for _ in range(total):  # the walk, document by document
        need = seq_length + 1
        while True:
            there = int(lens[order[position]]) - offset
            need -= there
            if need <= 0:
                offset += need + there - 1
                break
            position, offset = position + 1, 0
        rows.append((position, offset))
    shuffle = np.arange(total, dtype=np.uint32)
    if apart:
        head, tail = shuffle[:before].copy(), shuffle[before:].copy()
        state.shuffle(head)
        state.shuffle(tail)
        shuffle = np.concatenate([head, tail])
    else:
        state.shuffle(shuffle)
    return order, rows, shuffle


def gpt_sample(sequences, index, seq_length, i):
    """Tokens, and lengths of the pieces of documents that they come from."""
    order, rows, shuffle = index
    j = int(shuffle[i])
    (a, a_offset), (b, b_offset) = rows[j], rows[j + 1]
    if a == b:
        pieces = [sequences[order[a]][a_offset:b_offset + 1]]
    else:
        pieces = [sequences[order[a]][a_offset:]]
        pieces += [sequences[order[k]] for k in range(a + 1, b)]
        pieces += [sequences[order[b]][:b_offset + 1]]
    tokens = [token for piece in pieces for token in piece]
    assert len(tokens) == seq_length + 1
    return tokens, [len(piece) for piece in pieces]


def masks(tokens, eod, reset_positions, eod_mask, boundaries):
    inputs = tokens[:-1]
    positions = list(range(len(inputs)))
    loss = [1] * len(inputs)
    cu_seqlens = [0]
    start = 0
    for i, token in enumerate(inputs):
        positions[i] = i - start
        if token == eod:
            if eod_mask:
                loss[i] = 0
            if reset_positions:
                start = i + 1
            if boundaries == "eod" and i + 1 < len(inputs):
                cu_seqlens.append(i + 1)
    return positions, loss, cu_seqlens + [len(inputs)]


# --- blends and orders

def normalized(weights):
    weights = np.array(weights, dtype=np.float64)
    return (weights / np.sum(weights)).tolist()


def blend(weights, size):
    counts = [0] * len(weights)
    datasets, samples = [], []
    for k in range(size):
        errors = [w * max(k, 1) - c for w, c in zip(weights, counts)]
        chosen = errors.index(max(errors))
        datasets.append(chosen)
        samples.append(counts[chosen])
        counts[chosen] += 1
    return datasets, samples


def exhaustive_blend(sizes):
    weights = [size / sum(sizes) for size in sizes]
    counts = [0] * len(sizes)
    datasets, samples = [], []
    for k in range(sum(sizes)):
        left = [d for d in range(len(sizes)) if counts[d] < sizes[d]]
        errors = [weights[d] * max(k, 1) - counts[d] for d in left]
        chosen = left[errors.index(max(errors))]
        datasets.append(chosen)
        samples.append(counts[chosen])
        counts[chosen] += 1
    return datasets, samples


def cyclic(total, micro, ranks, rank, consumed, sharding, count):
    """The next `count` micro-batches of a rank, as Megatron's sampler yields them."""
    import torch

    def permutation(n, epoch):
        generator = torch.Generator()
        generator.manual_seed(epoch)
        return torch.randperm(n, generator=generator).tolist()

    batches = []
    while len(batches) < count:
        together = micro * ranks
        active = total - total % together
        epoch, current = consumed // active, consumed % active
        if sharding:
            bucket = total // together * micro
            places = [rank * bucket + x for x in permutation(bucket, epoch)[current // ranks:]]
        else:
            places = permutation(total // micro * micro, epoch)[current:][rank::ranks]
        for i in range(0, (active - current) // together):
            batches.append(places[i * micro:(i + 1) * micro])
            consumed += together
    return batches[:count]


# --- cases

def index_case(rng):
    count = rng.choice([1, 2, 3, 7, 20, 60])
    longest = rng.choice([1, 5, 30, 200])
    lens = [rng.randint(0 if rng.random() < 0.2 else 1, longest) for _ in range(count)]
    split = rng.choice(["1", "1,1,1", "969, 30, 1", "8,1,1", "0.5,0.25,0.25", "0,1", "98,2,0"])
    k = rng.randrange(3)
    seq_length = rng.choice([1, 2, 3, 4, 16, 64, 100])
    found = split_range(split_shares(split), k, count)
    case = {"kind": "index", "lens": lens, "split": split, "part": k, "range": found,
            "seq_length": seq_length, "seed": rng.choice([0, 1, 42, 1234, rng.randrange(2**32)])}
    if found is None or sum(lens[found[0]:found[1]]) < 1:
        return case
    per_epoch = sum(lens[found[0]:found[1]])
    if rng.random() < 0.2 and (per_epoch - 1) // seq_length > 0:
        case["num_samples"] = None
    else:
        most = max(1, int(4 * per_epoch / seq_length))
        case["num_samples"] = rng.randint(0 if per_epoch > seq_length else 1, min(most, 400))
    order, rows, shuffle = gpt_index(lens, list(range(*found)), seq_length, case["num_samples"],
                                     case["seed"])
    case["documents"] = order.tolist()
    case["starts"] = [number for row in rows for number in row]
    case["shuffle"] = shuffle.tolist()
    return case


def blend_case(rng):
    count = rng.choice([1, 2, 3, 9, 40, 200])
    raw = [rng.choice([1, 0.5, 30, rng.random() + 1e-3]) for _ in range(count)]
    weights = normalized(raw)
    size = rng.randint(0, 300)
    used = [math.ceil(size * w) for w in weights]
    case = {"kind": "blend", "raw": raw, "weights": weights, "num_samples": size, "used": used,
            "built": [math.ceil(math.ceil(size * w) * (1 + 0.005)) for w in weights]}
    case["dataset"], case["sample"] = blend(weights, sum(used))
    return case


def exhaustive_case(rng):
    sizes = [rng.randint(1, 60) for _ in range(rng.randint(1, 6))]
    datasets, samples = exhaustive_blend(sizes)
    return {"kind": "exhaustive", "sizes": sizes, "dataset": datasets, "sample": samples}


def cyclic_case(rng):
    micro, ranks = rng.randint(1, 4), rng.randint(1, 5)
    total = rng.randint(micro * ranks, 40 * micro * ranks)
    rank = rng.randrange(ranks)
    consumed = rng.randrange(200) * micro * ranks
    sharding = rng.random() < 0.6
    return {"kind": "cyclic", "total": total, "micro": micro, "ranks": ranks, "rank": rank,
            "consumed": consumed, "sharding": sharding,
            "batches": cyclic(total, micro, ranks, rank, consumed, sharding, 30)}


def shuffle_case(rng):
    n, seed = rng.choice([1, 2, 10, 255, 256, 257, 300, 1000]), rng.randrange(2**32)
    state = np.random.RandomState(seed)
    first, second = np.arange(n), np.arange(n)
    state.shuffle(first)
    state.shuffle(second)
    return {"kind": "shuffle", "seed": seed, "first": first.tolist(), "second": second.tolist()}


def write_cases(path, count, seed):
    rng = random.Random(seed)
    makers = [index_case] * 4 + [blend_case, exhaustive_case, cyclic_case, shuffle_case]
    with open(path, "w") as out:
        for i in range(count):
            out.write(json.dumps(makers[i % len(makers)](rng), separators=(",", ":")) + "\n")
    print(f"{path}: {count} cases, {os.path.getsize(path)} bytes")


def write_long_case(path):
    """From 2^32 / 20 numbers on PyTorch draws permutations in another way."""
    import torch
    n, seed = 214748365, 3
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    places = list(range(0, n, 1000003)) + [n - 1]
    with open(path, "w") as out:
        json.dump({"kind": "randperm", "n": n, "seed": seed, "places": places,
                   "values": order[places].tolist()}, out)
        out.write("\n")


# --- the program

def run(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def check_inspect(program, folder, rng):
    """Samples that the program shows against those made here, over random files and options."""
    samples = 0
    for case in range(25):
        eod = 256
        documents = [[[rng.randrange(256) for _ in range(rng.randint(1, 60))] + [eod]]
                     for _ in range(rng.randint(3, 40))]
        prefix = os.path.join(folder, f"pair{case}")
        write_pair(prefix, documents, rng.choice([np.uint16, np.int32, np.int64, np.int16]))
        counts = json.loads(run(program, "inspect", "data", prefix, "--json"))
        assert counts["sequences"] == len(documents), counts
        assert counts["tokens"] == sum(len(d[0]) for d in documents), counts
        sequences = [d[0] for d in documents]
        split, name = rng.choice([("1", "train"), ("2,1,1", "train"), ("1,1", "valid")])
        found = split_range(split_shares(split), ["train", "valid", "test"].index(name),
                            len(sequences))
        seq_length, seed = rng.choice([4, 16, 33]), rng.randrange(10000)
        num = rng.randint(1, 60)
        index = gpt_index([len(s) for s in sequences], list(range(*found)), seq_length, num, seed)
        for i in [0, num - 1]:
            flags, mode = [], rng.choice(["plain", "reset", "inter"])
            if mode == "reset":
                flags = ["--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"]
            if mode == "inter":
                flags = ["--dataloader-inter-document-masking"]
            got = json.loads(run(
                program, "inspect", "data", prefix, "--json", "--sample", str(i), "--seq-length",
                str(seq_length), "--seed", str(seed), "--split", split, "--split-name", name,
                "--num-samples", str(num), "--tokenizer-type", "ByteTokenizer", *flags))
            tokens, pieces = gpt_sample(sequences, index, seq_length, i)
            positions, loss, cu = masks(tokens, eod, mode == "reset", mode == "reset",
                                        "eod" if mode == "reset" else None)
            if mode == "inter":
                pieces[-1] -= 1
                pieces = [piece for piece in pieces if piece > 0]
                cu = np.cumsum([0] + pieces).tolist()
                positions = [p for piece in pieces for p in range(piece)]
            want = {"tokens": tokens[:-1], "labels": tokens[1:], "loss_mask": loss,
                    "position_ids": positions, "cu_seqlens": cu}
            assert got == want, (case, i, mode, got, want)
            samples += 1
    print(f"inspect: {samples} samples of 25 pairs are the same")


def check_preprocess(program, folder, rng):
    """Files that the program writes, read here; .gz, partitions, several keys, empty documents."""
    lines = []
    for i in range(500):
        lines.append({"text": "" if i % 50 == 7 else "".join(
            rng.choice("abc def\n\"\\é漢😀") for _ in range(rng.randint(1, 80))),
            "title": f"number {i}", "other": [1, {"a": None}]})
    plain = os.path.join(folder, "lines.jsonl")
    with open(plain, "w") as out:
        out.writelines(json.dumps(line, ensure_ascii=rng.random() < 0.5) + "\n" for line in lines)
    packed = os.path.join(folder, "packed.jsonl.gz")
    with gzip.open(packed, "wt") as out:
        out.write(open(plain).read())

    def wanted(key, order):
        return [[list(line[key].encode()) + [256]] for line in order if line[key]]

    for name, source, partitions in [("a", plain, 1), ("b", packed, 1), ("c", plain, 3)]:
        for workers in ["1", "3"]:
            prefix = os.path.join(folder, f"{name}{workers}")
            run(program, "preprocess", "--input", source, "--output-prefix", prefix, "--json-keys",
                "text", "title", "--append-eod", "--tokenizer-type", "ByteTokenizer", "--workers",
                workers, "--partitions", str(partitions))
            order = [line for k in range(partitions) for line in lines[k::partitions]]
            for key in ["text", "title"]:
                dtype, documents = read_pair(f"{prefix}_{key}_document")
                assert dtype == np.uint16 and documents == wanted(key, order), (name, workers, key)
        for key in ["text", "title"]:
            for suffix in [".bin", ".idx"]:
                one, three = (open(os.path.join(folder, f"{name}{w}_{key}_document{suffix}"),
                                   "rb").read() for w in "13")
                assert one == three, "workers change the files"
    merged = os.path.join(folder, "merged")
    parts = [os.path.join(folder, f"a1_{key}_document") for key in ["text", "title"]]
    run(program, "merge", "--input", *parts, "--output-prefix", merged)
    assert read_pair(merged)[1] == wanted("text", lines) + wanted("title", lines)
    print("preprocess and merge: 6 runs read back as they should")


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if what == "fixture":
        folder = os.path.join(root, "tests", "data", "datasets")
        os.makedirs(folder, exist_ok=True)
        write_cases(os.path.join(folder, "cases.jsonl"), 80, 5)
    elif what == "cases":
        write_cases(sys.argv[2], int(sys.argv[3]), random.randrange(2**32))
    elif what == "long":
        write_long_case(sys.argv[2])
    elif what == "program":
        rng = random.Random(11)
        with tempfile.TemporaryDirectory() as folder:
            check_inspect(sys.argv[2], folder, rng)
            check_preprocess(sys.argv[2], folder, rng)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
