#!/usr/bin/env python3
"""Does transformers load what `phalanx convert export` writes, and compute the same with it?

    .deps/oracle/bin/python scripts/check_hf_export.py --phalanx build/release/phalanx

For every folder of tests/data/hf: import into a native checkpoint, export again (in several shards),
let transformers load the result unmodified, and compare its fp32 logits with those stored beside the
original. Tensors and config are compared as well. (Packages as in make_fixtures.py.)
"""

import argparse
import pathlib
import subprocess
import tempfile

import torch
import transformers as tf
from safetensors.torch import load_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data/hf"


def load(folder, dtype=torch.float32):
    model, info = tf.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    assert not info["mismatched_keys"], info
    return model.eval()


def tensors(folder):
    merged = {}
    for path in sorted(folder.glob("model*.safetensors")):
        merged |= load_file(path)
    for path in sorted(folder.glob("pytorch_model*.bin")):
        merged |= torch.load(path, weights_only=True)
    return merged


def check(phalanx, source, work, tolerance):
    native, exported = work / "native", work / "exported"
    run = lambda *args: subprocess.run([phalanx, "convert", *map(str, args)], check=True,
                                       stdout=subprocess.DEVNULL)
    run("import", "--hf", source, "--native", native)
    run("export", "--native", native, "--hf", exported, "--max-shard-size", "10KB")
    run("check", "--hf", exported, "--native", native, "--logits", source / "logits.safetensors")

    before, after = tensors(source), tensors(exported)
    # Exports have one tensor for each expert, and no FP8; then the logits alone show that they are the same.
    stacked = any(n.endswith("experts.gate_up_proj") for n in before)
    quantized = any(n.endswith("_scale_inv") for n in before)
    if not stacked and not quantized:
        assert before.keys() == after.keys(), before.keys() ^ after.keys()
        same = all(torch.equal(before[n], after[n]) and before[n].dtype == after[n].dtype
                   for n in before)
        assert same, "tensors differ"
    stored = load_file(source / "logits.safetensors")
    model = load(exported)
    with torch.no_grad():
        logits = model(input_ids=stored["tokens"], use_cache=False).logits
    far = float((logits - stored["logits"]).abs().max())
    shards = len(list(exported.glob("model*.safetensors")))
    print(f"{source.name:12} {type(model).__name__:20} {len(after):3} tensors in {shards} files, "
          f"{'apart' if stacked else 'in full' if quantized else 'bit for bit'}; logits differ by {far:g}")
    # Stacked experts lie elsewhere in memory, and sums depend on the alignment.
    assert far <= max(tolerance, 1e-5 if stacked else 0), "logits differ"


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of tests/data/hf; default: all")
    parser.add_argument("--phalanx", default="build/release/phalanx")
    # The weights are the same bits and so is the code that multiplies them. Other
    # versions than those that stored the logits (logits.safetensors names them) may sum in another
    # order: 1e-5 then.
    parser.add_argument("--tolerance", type=float, default=0.0)
    args = parser.parse_args()
    for folder in sorted(DATA.iterdir()):
        if folder.is_dir() and (not args.names or folder.name in args.names):
            with tempfile.TemporaryDirectory() as work:
                check(args.phalanx, folder, pathlib.Path(work), args.tolerance)


if __name__ == "__main__":
    main()
