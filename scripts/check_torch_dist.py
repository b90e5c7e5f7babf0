#!/usr/bin/env python3
"""Loads a torch_dist or fsdp_dtensor checkpoint with PyTorch's own distributed-checkpoint reader and compares it.

    python scripts/check_torch_dist.py OUT/iter_0000000 --native SAVED/iter_0000000
    python scripts/check_torch_dist.py OUT/iter_0000030 --fixture

--native: bit for bit against a native checkpoint (manifest.json and its shards). fsdp_dtensor folders hold fp32 masters:
of bf16 weights these are compared after rounding, ties away from zero, as ours are.
--fixture: against the numbers of make_torch_fixtures.py: the masters, of which our weights are made.
"""
import argparse
import json
import os
import re
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16,
          "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}


def load_dist(folder):
    """{key: tensor}, all that the checkpoint has, through dcp.load."""
    metadata = dcp.FileSystemReader(folder).read_metadata()
    state = {key: torch.empty(entry.size, dtype=entry.properties.dtype)
             for key, entry in metadata.state_dict_metadata.items() if isinstance(entry, TensorStorageMetadata)}
    for tensor in state.values():
        tensor.view(torch.uint8 if tensor.dim() else tensor.dtype).fill_(0xA5 if tensor.dim() else 0)
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def unstacked(state):
    """Our names: layers and experts one by one."""
    result = {}
    for key, tensor in state.items():
        pieces = [(key, tensor)]
        if re.match(r"decoder\.layers\.\D", key):
            pieces = [(key.replace("decoder.layers.", f"decoder.layers.{i}.", 1), layer)
                      for i, layer in enumerate(tensor)]
        for name, piece in pieces:
            if ".experts.experts." not in name:
                result[name] = piece
                continue
            for i, expert in enumerate(piece):
                result[name.replace(".experts.experts.", ".experts.") + str(i)] = expert
    return result


def of_fsdp(state):
    """Our names of Megatron-FSDP's weights: halves of gated matrices joined, norms under their fused names only."""
    names = {key[len("model.module."):]: tensor for key, tensor in state.items() if key.startswith("model.module.")}
    result = {}
    for name, tensor in names.items():
        fused = name.replace(".input_layernorm.", ".self_attention.linear_qkv.layer_norm_")
        fused = fused.replace(".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_")
        if name.endswith("_v"):
            continue
        result[fused.removesuffix("_w")] = torch.cat([tensor, names[name[:-1] + "v"]]) if name.endswith("_w") else tensor
    return result


def rounded(tensor, dtype):
    """fp32 masters as our weights of `dtype`."""
    if dtype != torch.bfloat16:
        return tensor.to(dtype)
    bits = tensor.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    halves = ((bits + 0x8000) >> 16) & 0xFFFF
    return torch.where(halves >= 0x8000, halves - 0x10000, halves).to(torch.int16).view(torch.bfloat16)


def without_padding(state):
    """Weights alone, the vocabulary without the zero rows that pad it."""
    result = {}
    for name, tensor in state.items():
        if name.startswith("optimizer."):
            continue
        if name.endswith(("word_embeddings.weight", "output_layer.weight")):
            used = tensor.float().abs().sum(dim=1).nonzero()
            tensor = tensor[: int(used.max()) + 1]
        result[name] = tensor
    return result


def load_native(folder):
    with open(os.path.join(folder, "manifest.json")) as file:
        manifest = json.load(file)["checkpoint"]
    result = {}
    for name, entry in manifest["tensors"].items():
        if name.startswith("optimizer."):
            continue
        dtype = DTYPES[entry["dtype"]]
        tensor = torch.empty(entry["shape"], dtype=dtype)
        for piece in entry["pieces"]:
            count = 1
            for extent in piece["size"]:
                count *= extent
            with open(os.path.join(folder, manifest["files"][piece["file"]]["name"]), "rb") as file:
                file.seek(piece["offset"])
                data = bytearray(file.read(count * dtype.itemsize))
            box = tuple(slice(b, b + s) for b, s in zip(piece["begin"], piece["size"]))
            tensor[box] = torch.frombuffer(data, dtype=dtype).reshape(piece["size"])
        result[name] = tensor
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--native")
    parser.add_argument("--fixture", action="store_true")
    args = parser.parse_args()
    fsdp = not os.path.exists(os.path.join(args.folder, "metadata.json"))
    state = load_dist(args.folder)
    loaded = without_padding(of_fsdp(state) if fsdp else unstacked(state))
    if args.native:
        expected = load_native(args.native)
        if fsdp:
            loaded = {name: rounded(tensor, expected[name].dtype) if name in expected else tensor for name, tensor in loaded.items()}
    elif args.fixture:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from make_torch_fixtures import values
        expected = {name: values("optimizer.state.param." + name, tensor.shape, tensor.dtype) for name, tensor in loaded.items()}
    else:
        parser.error("give --native or --fixture")
    wrong = [f"{name}: only in one of the two" for name in set(loaded) ^ set(expected)]
    for name in sorted(set(loaded) & set(expected)):
        a, b = loaded[name], expected[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            wrong.append(f"{name}: {a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}")
        elif not torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8)):
            wrong.append(f"{name}: other numbers")
    for line in wrong:
        print(line)
    print(f"{len(loaded) - len(wrong)} of {len(expected)} tensors are equal bit for bit")
    sys.exit(1 if wrong or not loaded else 0)


if __name__ == "__main__":
    main()
