#!/usr/bin/env python3
"""Runs bench_tokenizer and Hugging Face's tokenizers on the same file and text, on one core each.

    python3 benchmarks/tokenizer_peer.py build/release/bench_tokenizer tokenizer.json english.txt"""
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402  (reads the line above)

DOCUMENT = 8192


def main():
    program, model, path = sys.argv[1:4]
    subprocess.run([program, "--tokenizer", model, "--text", path], check=True)
    tokenizer = tokenizers.Tokenizer.from_file(model)
    text = open(path, encoding="utf-8", errors="replace").read()
    documents = [text[i:i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
    rates = []
    for _ in range(3):  # the library caches words too; the first pass fills its cache
        begin = time.perf_counter()
        tokens = sum(len(tokenizer.encode(d, add_special_tokens=False).ids) for d in documents)
        rates.append(len(text.encode()) / (time.perf_counter() - begin) / 1e6)
    name = f"tokenizers {tokenizers.__version__}"
    print(f"{name:<22} {sorted(rates)[1]:8.1f} MB/s median {max(rates):8.1f} best  "
          f"{len(text.encode()) / tokens:.2f} bytes a token")


main()
