"""A program for megatron_on_cpu.py: loads --load as pretrain_gpt.py would and writes the logits of a prompt.

  python scripts/megatron_on_cpu.py --megatron DIR --ranks N --program scripts/megatron_logits.py -- \
      FLAGS OF THE RUN --load CHECKPOINTS --ckpt-step N

The variable LOGITS_FILE names the safetensors file: tokens [1, s] int64 and logits [1, s, v] fp32, as
`phalanx convert check --logits` reads it. The tokens are spread over the vocabulary. Any layout of tensor and pipeline
parallelism works: the last stage writes, and its ranks gather the vocabulary.
"""

import functools
import json
import os
import struct

import torch


def save_safetensors(path, tensors):
    """{name: int64 or fp32 tensor} as a safetensors file."""
    header, blobs, at = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        kind = {torch.int64: "I64", torch.float32: "F32"}[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    from megatron.core import mpu
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region
    from megatron.training import arguments, get_args
    from megatron.training.checkpointing import load_checkpoint
    from megatron.training.initialize import initialize_megatron
    from megatron.training.training import get_model

    provider = providers()
    defaults = {"tokenizer_type": "NullTokenizer"}
    if hasattr(arguments, "parse_and_validate_args"):
        arguments.parse_and_validate_args(args_defaults=defaults)
        initialize_megatron()
    else:  # 0.17 and older
        initialize_megatron(args_defaults=defaults)
    args = get_args()
    model = get_model(provider, ModelType.encoder_or_decoder, wrap_with_ddp=False)
    args.no_load_optim = args.no_load_rng = True
    load_checkpoint(model, None, None, strict=True)
    for chunk in model:
        chunk.eval()
    count = args.seq_length
    tokens = torch.tensor([[(i * 618034 + 1) % args.vocab_size for i in range(count)]])
    positions = torch.arange(count).unsqueeze(0)
    # True where a token may not look.
    mask = torch.ones(1, 1, count, count, dtype=torch.bool).triu(1)

    def forward_step(_, chunk):
        def whole(output, non_loss_data=True):
            return gather_from_tensor_model_parallel_region(output.float())

        return chunk(tokens, positions, mask), whole

    # Interleaved stages want as many micro-batches as stages: the same one again and again.
    times = mpu.get_pipeline_model_parallel_world_size()
    with torch.no_grad():
        outputs = get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=[None] * len(model), model=model, num_microbatches=times,
            seq_length=count, micro_batch_size=1, forward_only=True, collect_non_loss_data=True)
    if mpu.is_pipeline_last_stage(ignore_virtual=True) and mpu.get_tensor_model_parallel_rank() == 0 \
            and mpu.get_data_parallel_rank() == 0:
        logits = outputs[0][:, :, : args.vocab_size].contiguous()
        save_safetensors(os.environ["LOGITS_FILE"], {"tokens": tokens, "logits": logits})
        print(f"logits {list(logits.shape)} are in {os.environ['LOGITS_FILE']}")


def providers():
    from gpt_builders import gpt_builder
    from model_provider import model_provider

    return functools.partial(model_provider, gpt_builder)


if __name__ == "__main__":
    main()
