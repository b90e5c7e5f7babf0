"""Writes safetensors files byte for byte the same on every run.

The safetensors package writes `__metadata__` in the order of a hash map, so the same fixture would
differ between two runs; here keys are sorted. Any reader of the format reads the result.
"""

import json
import struct

import torch

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.int64: "I64", torch.int32: "I32"}


def write(path, tensors, metadata):
    """tensors: name -> CPU tensor; metadata: name -> string."""
    header = {"__metadata__": dict(sorted(metadata.items()))}
    blobs, offset = [], 0
    # Wide types first: with the header padded to 8 bytes every tensor then starts aligned.
    for name in sorted(tensors, key=lambda n: (-tensors[n].element_size(), n)):
        tensor = tensors[name].detach().contiguous()
        blob = tensor.numpy().tobytes()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.writelines(blobs)
    return 8 + len(text) + offset
