#!/usr/bin/env python3
"""Compares `phalanx tokenizer encode` and `decode` with the libraries that the files come from, over a
corpus that is meant to hurt.

    python3 scripts/check_tokenizers.py build/release/phalanx FILE ...

tokenizer.json files are compared with Hugging Face's `tokenizers`, .model files with `sentencepiece`,
tekken*.json and rank files with `tiktoken` (all from PyPI). Third-party files are not part of this repository."""
import base64
import json
import random
import subprocess
import sys
import time
from pathlib import Path

# First code points of blocks are enough to name them; every assigned code point is used below.
JOINED = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇫🇷", "1️⃣", "☺️", "❤️‍🔥", "🧑🏿‍🚀", "👨‍💻"]
WORDS = ("The quick brown fox jumps over the lazy dog. It's what they've said: we'll see, I'M sure, "
         "DON'T you'D THEY'RE o'clock 'tis rock'n'roll. Größe naïve façade Ångström ﬁne ſs 'ſ "
         "snake_case camelCase HTTPServer XMLHttpRequest x=1; y+=2 // comment\n\tif (a && b) {\r\n"
         "  return 3.14159e-10; } 12345678901 1,234,567.89 0x1F ½ ² Ⅷ ٣٤٥ १२३ "
         "中文分词测试。日本語のテキスト、カタカナ。한국어 문장입니다. ไทยไม่มีช่องว่าง "
         "العربية مُشَكَّلَة שָׁלוֹם हिन्दी क्षत्रिय தமிழ் Ελληνικά Σίσυφος Русский ёлка İstanbul ıI "
         "e\u0301\u0323 \u0301leading q\u0307\u0323 \u1100\u1161\u11a8 각 \u200b\u200d\u2060\ufeff "
         "\u00a0\u2003\u3000 \u0085 \u2028\u2029 <s> </s> <|endoftext|> <|im_start|>user\n[INST] x "
         "<unk> <pad>[CLS][SEP][MASK] ▁ ▁▁ĠĊ <0x0A> $100 €5 @user #tag https://a.b/c?d=e&f=g%20h ")


def corpus(specials):
    """Texts of all sorts; the same ones every time."""
    rng = random.Random(20260101)
    texts = ["", " ", "\n", "a", "é", "中", "👍", "\u0000", "\u0301", "\uffff", "\U0010ffff", "  a  ",
             "\n\n  \n", "a\r\nb\rc\n", "'", "''s", "'s't're've'm'll'd", "'S'T'RE'VE'M'LL'D"]
    texts += JOINED + [" ".join(JOINED), "".join(JOINED), WORDS, WORDS.upper(), WORDS.lower()]
    texts += WORDS.split(" ")
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for begin in range(0, len(codes), 128):  # every code point, alone in its row and after a word
        chunk = codes[begin:begin + 128]
        if 0x20000 <= chunk[0] and chunk[0] % 4096:
            continue
        texts.append("".join(map(chr, chunk)))
        texts.append(" ".join("a" + chr(c) + "b" for c in chunk))
    common = [c for c in codes if c < 0x3000 or 0x1F300 <= c < 0x1FB00]
    for _ in range(600):  # random mixtures
        length = rng.randrange(1, 60)
        kind = rng.randrange(4)
        pool = [codes, common, range(32, 127), list(map(ord, " \n\r\t'aAsS1.中é\u0301ſ"))][kind]
        texts.append("".join(chr(rng.choice(pool)) for _ in range(length)))
    for _ in range(300):  # added tokens inside and around words
        parts = [rng.choice(specials or ["x"]) if rng.random() < 0.4
                 else rng.choice(["a", " ", "word", "\n", "é", "  ", "_", "1", ".", "中"])
                 for _ in range(rng.randrange(1, 12))]
        texts.append("".join(parts))
    return texts


def long_texts():
    rng = random.Random(7)
    return ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(1 << 20)), "a" * (1 << 20),
            " " * (1 << 18), "\n" * (1 << 18), "中文" * (1 << 17), "A" * (1 << 18), "1" * (1 << 18),
            "!" * (1 << 18), "é\u0301" * (1 << 17)]


def run_lines(program, action, arguments, lines):
    done = subprocess.run([program, "tokenizer", action, "--jsonl", *arguments],
                          input="".join(json.dumps(line) + "\n" for line in lines),
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.split("\n") if line]


class HuggingFace:
    def __init__(self, path):
        import tokenizers
        self.library = f"tokenizers {tokenizers.__version__}"
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        added = json.loads(Path(path).read_text()).get("added_tokens", [])
        self.specials = [token["content"] for token in added][:200]
        self.arguments = ["--tokenizer-model", str(path)]

    def encode(self, text, special=False):
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)


class SentencePiece:
    def __init__(self, path):
        import sentencepiece
        self.library = f"sentencepiece {sentencepiece.__version__}"
        self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.specials = ["<s>", "</s>", "[INST]", "[/INST]"]
        self.arguments = ["--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", str(path)]

    def encode(self, text, special=False):
        return self.tokenizer.encode(text)

    def decode(self, ids):
        return self.tokenizer.decode(ids)


class Ranks:
    """Lines of "base64 rank", with Megatron's special tokens and patterns."""
    V1 = r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

    def __init__(self, path):
        import tiktoken
        self.library = f"tiktoken {tiktoken.__version__}"
        lines = [line.split() for line in Path(path).read_text().splitlines() if line]
        named = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]
        self.specials = named + [f"<SPECIAL_{i}>" for i in range(len(named), 1000)]
        self.tokenizer = tiktoken.Encoding(
            "ranks", pat_str=self.V1,
            mergeable_ranks={base64.b64decode(token): int(rank) + 1000 for token, rank in lines},
            special_tokens={token: i for i, token in enumerate(self.specials)})
        self.arguments = ["--tokenizer-type", "TikTokenizer", "--tokenizer-model", str(path),
                          "--tiktoken-pattern", "v1", "--vocab-size", str(int(lines[-1][1]) + 1001)]  # a rank may be left out

    def encode(self, text, special=False):
        return self.tokenizer.encode(text, allowed_special="all")

    def decode(self, ids):
        return self.tokenizer.decode(ids)


class Tekken:
    def __init__(self, path):
        import tiktoken
        self.library = f"tiktoken {tiktoken.__version__}"
        data = json.loads(Path(path).read_text())
        config = data["config"]
        self.offset = config["default_num_special_tokens"]
        count = config["default_vocab_size"] - self.offset
        ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:count]}
        self.tokenizer = tiktoken.Encoding("tekken", pat_str=config["pattern"],
                                           mergeable_ranks=ranks, special_tokens={})
        self.specials = ["<s>", "[INST]"]
        self.arguments = ["--tokenizer-model", str(path)]

    def encode(self, text, special=False):
        return [i + self.offset for i in self.tokenizer.encode_ordinary(text)]

    def decode(self, ids):
        return self.tokenizer.decode([i - self.offset for i in ids])


def reference(path):
    if "tekken" in path.name:
        return Tekken(path)
    if path.suffix in ("", ".tiktoken"):
        return Ranks(path)
    if ".model" in path.name:
        return SentencePiece(path)
    return HuggingFace(path)


def first_difference(ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"from {at}: ours {ours[at:at + 8]}, theirs {theirs[at:at + 8]}"


def check(program, path):
    theirs = reference(path)
    # A library that takes a text apart quadratically would not come back from the long ones.
    texts = corpus(theirs.specials) + long_texts()
    wrong = 0
    for special in (False, True):
        expected = [theirs.encode(text, special) for text in texts]
        begin = time.monotonic()
        got = run_lines(program, "encode", theirs.arguments + ["--special"] * special, texts)
        seconds = time.monotonic() - begin
        for text, ours, right in zip(texts, got, expected, strict=True):
            if ours != right:
                wrong += 1
                if wrong <= 10:
                    print(f"  {text[:60]!r}: {first_difference(ours, right)}")
    decoded = run_lines(program, "decode", theirs.arguments, expected)
    for ids, ours in zip(expected, decoded, strict=True):
        right = theirs.decode(ids)
        if ours != right:
            wrong += 1
            if wrong <= 10:
                print(f"  decode {ids[:8]}: ours {ours[:60]!r}, theirs {right[:60]!r}")
    print(f"{'DIFFERENT' if wrong else 'equal'}: {path}: {len(texts)} texts, "
          f"{sum(map(len, expected))} tokens, {wrong} differences, {theirs.library}, {seconds:.1f} s")
    return wrong


def main():
    program, *files = sys.argv[1:]
    wrong = sum(check(program, Path(file)) for file in files)
    sys.exit(1 if wrong else 0)


main()
