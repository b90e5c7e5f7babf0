#!/usr/bin/env python3
"""Writes the small PyTorch and Megatron checkpoints under tests/data/torch with PyTorch itself.

The tests read them without PyTorch. Every number follows from the tensor's name and its place in the
global tensor (see `values`), so that a test knows what it should find.

    python scripts/make_torch_fixtures.py tests/data/torch
"""
import argparse
import enum
import json
import os
import shutil
import sys
import types

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

LAYERS, HIDDEN, HEADS, GROUPS, HEAD, FFN, VOCAB, EXPERTS = 2, 8, 4, 2, 2, 6, 24, 2
RANKS = 2
MASTERS = "optimizer.state.param."


def values(name, shape, dtype=torch.float32):
    """Whole numbers of at most 125, which every type here holds exactly."""
    count = 1
    for dim in shape:
        count *= dim
    index = torch.arange(count)
    return (((index * 7 + 3 * len(name)) % 251) - 125).to(dtype).reshape(shape)


def masters(name, shape):
    """fp32 numbers that bf16 rounds to the weights of that name."""
    return values(name, shape) * (1 + 2**-10)


# Our names, their global shapes, and the axis that tensor-parallel ranks cut.
def layer_tensors(layer, moe=False):
    prefix = f"decoder.layers.{layer}."
    qkv = (HEADS + 2 * GROUPS) * HEAD
    yield prefix + "self_attention.linear_qkv.layer_norm_weight", (HIDDEN,), None
    yield prefix + "self_attention.linear_qkv.weight", (qkv, HIDDEN), 0
    yield prefix + "self_attention.linear_proj.weight", (HIDDEN, HEADS * HEAD), 1
    if moe:
        yield prefix + "pre_mlp_layernorm.weight", (HIDDEN,), None
        yield prefix + "mlp.router.weight", (EXPERTS, HIDDEN), None
        for expert in range(EXPERTS):
            yield prefix + f"mlp.experts.linear_fc1.weight{expert}", (2 * FFN, HIDDEN), 0
            yield prefix + f"mlp.experts.linear_fc2.weight{expert}", (HIDDEN, FFN), 1
    else:
        yield prefix + "mlp.linear_fc1.layer_norm_weight", (HIDDEN,), None
        yield prefix + "mlp.linear_fc1.weight", (2 * FFN, HIDDEN), 0
        yield prefix + "mlp.linear_fc2.weight", (HIDDEN, FFN), 1


def model_tensors(layers=LAYERS, moe_from=None):
    yield "embedding.word_embeddings.weight", (VOCAB, HIDDEN), 0
    for layer in range(layers):
        yield from layer_tensors(layer, moe_from is not None and layer >= moe_from)
    yield "decoder.final_layernorm.weight", (HIDDEN,), None
    yield "output_layer.weight", (VOCAB, HIDDEN), 0


def rank_slices(name, tensor, axis, rank):
    """(offset along the axis, part) of one tensor-parallel rank; [gate; up] gives two."""
    if axis is None:
        return [(0, tensor)] if rank == 0 else []
    if "linear_fc1" in name:
        half = tensor.shape[0] // 2
        part = half // RANKS
        return [(h * half + rank * part, tensor.narrow(0, h * half + rank * part, part)) for h in (0, 1)]
    part = tensor.shape[axis] // RANKS
    return [(rank * part, tensor.narrow(axis, rank * part, part))]


def key_and_index(name, stacked):
    """Megatron's key of one of our tensors, and its place on the axes that the key adds."""
    index = []
    parts = name.split(".")
    if stacked and name.startswith("decoder.layers."):
        index.append((int(parts[2]), LAYERS))
        del parts[2]
    if "experts" in parts:
        at = parts.index("experts")
        expert = int(parts[-1][len("weight"):])
        index.append((expert, EXPERTS))
        parts[-1] = "weight"
        parts.insert(at, "experts")
    return ".".join(parts), index


def sharded_state(rank, tensors, stacked, prefixes):
    """{key: ShardedTensor} of this rank, for the weights and for states under a prefix."""
    shards, sizes = {}, {}
    for prefix, dtype in prefixes:
        for name, shape, axis in tensors:
            key, index = key_and_index(name, stacked)
            whole = masters(name, shape) if prefix == MASTERS else values(prefix + name, shape, dtype)
            lead, extents = [i for i, _ in index], [n for _, n in index]
            sizes[prefix + key] = extents + list(shape)
            entry = shards.setdefault(prefix + key, [])
            for offset, part in rank_slices(name, whole, axis, rank):
                offsets = lead + [0] * len(shape)
                if axis is not None:
                    offsets[len(lead) + axis] = offset
                local = part.contiguous().reshape([1] * len(lead) + list(part.shape))
                entry.append(Shard(local, ShardMetadata(offsets, list(local.shape), f"rank:{rank}/cpu")))
    return {key: init_from_local_shards(shards[key], *sizes[key]) for key in sorted(shards)}


def megatron_args(layers=LAYERS, **more):
    module = sys.modules.setdefault("megatron.core.transformer.enums",
                                    types.ModuleType("megatron.core.transformer.enums"))
    if not hasattr(module, "AttnBackend"):
        backend = enum.Enum("AttnBackend", {"flash": 1, "auto": 5})
        backend.__module__ = module.__name__
        module.AttnBackend = backend
        for name in ("megatron", "megatron.core", "megatron.core.transformer"):
            sys.modules.setdefault(name, types.ModuleType(name))
    return argparse.Namespace(num_layers=layers, hidden_size=HIDDEN, num_attention_heads=HEADS,
                              num_query_groups=GROUPS, kv_channels=HEAD, ffn_hidden_size=FFN, swiglu=True,
                              normalization="RMSNorm", padded_vocab_size=VOCAB, params_dtype=torch.bfloat16,
                              vocab_size=None, group_query_attention=True, seq_length=16,
                              max_position_embeddings=16, position_embedding_type="rope", norm_epsilon=1e-6,
                              add_bias_linear=False, hidden_dropout=0.0, attention_dropout=0.0,
                              consumed_train_samples=240, consumed_valid_samples=16,
                              attention_backend=module.AttnBackend.auto, rotary_base=10000, lr=1e-3,
                              data_path=["a", "b"], untie_embeddings_and_output_weights=True, **more)


def common_state():
    return {"args": megatron_args(), "checkpoint_version": 3.0, "iteration": 30,
            "content_metadata": {"distrib_optim_sharding_type": "fully_reshardable"},
            "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": 232},
            "optimizer": {"optimizer": {"param_groups": [{"lr": 1e-3, "step": 29, "params": []}]}}}


def save_dist(rank, folder, new_generation):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517" if new_generation else "29518")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    if new_generation:  # layers alike and stacked, optimizer state, replicated state as an object
        prefixes = [("", torch.bfloat16), ("optimizer.state.exp_avg.", torch.float32),
                    ("optimizer.state.exp_avg_sq.", torch.float32), (MASTERS, torch.float32)]
        state = sharded_state(rank, list(model_tensors()), True, prefixes)
        state["common_state/shard_0_1"] = common_state()
        state["rng_state/shard_0.0_1.2"] = [{"torch_rng_state": torch.zeros(4, dtype=torch.uint8)}]
        state["decoder.layers.self_attention.linear_qkv._extra_state/shard_0_2"] = b"fp8"
    else:  # layers with numbers, the second one with experts
        state = sharded_state(rank, list(model_tensors(moe_from=1)), False, [("", torch.float32)])
        state["optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)."
              "bucket_idx_0.exp_avg"] = values("bucket", (40,))
    dcp.save(state, checkpoint_id=folder, planner=DefaultSavePlanner(flatten_state_dict=False))
    dist.destroy_process_group()
    if rank != 0:
        return
    about = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    if not new_generation:
        about.update(common_backend="torch", common_backend_version=1)
        torch.save(common_state(), os.path.join(folder, "common.pt"))
    with open(os.path.join(folder, "metadata.json"), "w") as file:
        json.dump(about, file)


def save_torch_folder(folder, stages=2, chunks=2):
    """Four layers over two stages with two chunks each; chunk-major, as Megatron interleaves."""
    tensors = list(model_tensors(layers=stages * chunks))
    for stage in range(stages):
        for rank in range(RANKS):
            models = []
            for chunk in range(chunks):
                model = {}
                for name, shape, axis in tensors:
                    layer = int(name.split(".")[2]) if name.startswith("decoder.layers.") else None
                    block = chunk * stages + stage
                    here = (layer == block if layer is not None else
                            block == (0 if name.startswith("embedding") else stages * chunks - 1))
                    if not here:
                        continue
                    parts = rank_slices(name, values(name, shape), axis, rank if axis is not None else 0)
                    local = torch.cat([part for _, part in parts], axis or 0).clone()
                    model[name if layer is None else name.replace(f"layers.{layer}.", "layers.0.")] = local
                models.append(model)
            path = os.path.join(folder, "iter_0000030", f"mp_rank_{rank:02d}_{stage:03d}")
            os.makedirs(path)
            state = {"args": megatron_args(stages * chunks, tensor_model_parallel_size=RANKS, pipeline_model_parallel_size=stages,
                                           expert_model_parallel_size=1),
                     "checkpoint_version": 3.0, "iteration": 30}
            state.update({f"model{i}": model for i, model in enumerate(models)})
            torch.save(state, os.path.join(path, "model_optim_rng.pt"))
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w") as file:
        file.write("30")


def plain_objects():
    base = values("base", (6, 4))
    return {
        "weight": values("weight", (3, 5)),
        "transposed": base.t(),
        "rows": base[2:5],  # the same storage
        "columns": base[:, 1:3],
        "half": values("half", (7,), torch.float16),
        "brain": values("brain", (2, 2, 2), torch.bfloat16),
        "double": values("double", (3,), torch.float64),
        "long": values("long", (3,), torch.int64),
        "mask": torch.tensor([True, False, True]),
        "scalar": values("scalar", ()),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(values("parameter", (4,))),
        "inner": {"deep": {"leaf": values("inner.deep.leaf", (2, 3))}, "number": 3},
        "step": 17,
    }


def save_files(folder):
    torch.save(plain_objects(), os.path.join(folder, "plain.pt"))
    torch.save(plain_objects(), os.path.join(folder, "legacy.pt"), _use_new_zipfile_serialization=False)
    small = {"e4m3": values("e4m3", (4,)).sign().to(torch.float8_e4m3fn),
             "u16": torch.arange(4).to(torch.uint16)}
    torch.save(small, os.path.join(folder, "small_types.pt"))
    hf = os.path.join(folder, "hf_bin")
    os.makedirs(hf)
    weights = [("model.embed_tokens.weight", (5, 4)), ("model.norm.weight", (4,)), ("lm_head.weight", (5, 4))]
    index = {"metadata": {"total_size": 0}, "weight_map": {}}
    for i, part in enumerate((weights[:2], weights[2:])):
        name = f"pytorch_model-{i + 1:05d}-of-00002.bin"
        torch.save({key: values(key, shape) for key, shape in part}, os.path.join(hf, name))
        index["weight_map"].update({key: name for key, _ in part})
    with open(os.path.join(hf, "pytorch_model.bin.index.json"), "w") as file:
        json.dump(index, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    save_files(folder)
    save_torch_folder(os.path.join(folder, "torch"))
    for name, new_generation in (("torch_dist", True), ("torch_dist_older", False)):
        mp.spawn(save_dist, (os.path.join(folder, name), new_generation), nprocs=RANKS)


if __name__ == "__main__":
    main()
