#!/usr/bin/env python3
"""Trains small tokenizers of every kind with Hugging Face's library and writes them to
tests/data/tokenizers with texts and the ids that the library gives. components.json holds single
components (normalizers, pre-tokenizers, decoders) with what they make of some texts, and a hash of what
they make of every code point.

    python3 scripts/make_tokenizer_fixtures.py

Needs the PyPI packages tokenizers and sentencepiece."""
import io
import json
import os
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders as d
from tokenizers import models as m
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p
from tokenizers import processors as post
from tokenizers import trainers as t

FOLDER = Path(__file__).parent.parent / "tests" / "data" / "tokenizers"

# Sentences of our own, enough to learn a few hundred tokens from.
ENGLISH = """The miller's daughter carried seven sacks of flour to the market, and sold six of them.
It's raining again; they've said we'll walk anyway, but I'm not sure you'd like that.
A ship of 128 sailors left the harbour at 06:45 on 3 May 1897 and was never seen again.
def main(argument):\n    return [number * 2 for number in range(argument) if number % 3 == 0]
Every morning the old gardener counted his apples: one, two, three, four, five, six, seven.
DON'T PANIC! The URL is https://example.org/path?query=1&other=2#part (see section 4.2).
""".split("\n")
OTHERS = """Die Größe des Gebäudes überraschte die Gäste, naïve façade, Ångström, çağdaş.
Маленькая ёлка стоит на берегу реки. Ο Σίσυφος έσπρωχνε τον βράχο. 
今日は良い天気ですね。东西南北，春夏秋冬。오늘은 날씨가 좋습니다.
السلام عليكم ورحمة الله. שָׁלוֹם עֲלֵיכֶם. नमस्ते दुनिया। สวัสดีชาวโลก""".split("\n")
CORPUS = (ENGLISH + OTHERS) * 4

TEXTS = ENGLISH + OTHERS + [
    "", " ", "  ", "\n", "\t\n \r\n", "a", "é", "e\u0301", "👩‍👩‍👧‍👦 👍🏽🏳️‍🌈", "\u0000\u0001", "\uffff\U0010ffff",
    "hello   world  ", "  leading and trailing \n", "'s't're 'LL 'ſ ''", "１２３ ½ ² Ⅷ ٣٤٥ 1234567",
    "CamelCaseWord XMLHttp aB Ab ABc", "<s>one</s> two<|end|>three", "word<mask> <mask>word", "[CLS]a[SEP]",
    "x<sp>y <sp> z", "ﬁne ﬀ ﾊﾝｶｸ ㌀ ①", "İstanbul ıI ẞß ǅ", "\u1100\u1161\u11a8 각 가\u11a8", "q\u0307\u0323 q\u0323\u0307",
    "\u0301start a\u0301\u0301b", "zero\u200bwidth\u200d\u2060\ufeffmarks\u00a0no\u3000wide\u0085next\u180emvs",
    "\u0378 unassigned \ue000 private", "▁already ▁▁ marked", "Ġĉ byte letters", "<0x41> <0xFF>", "_under_score__",
    "tab\tseparated\tvalues", "a/b\\c|d", "!!!???...", "don't", "DON'T", "日本語text混合123", "\u0e33\u0e48\u0e01",
    "क्षत्रिय", "a\u0300\u0301\u0327\u0328", "𝒜𝓑𝕮 𐐀𐐨 🅰🅱 Ⓐⓐ", "\u2581\u2581", "The\nmiller\r\n\r\nsold  flour",
    "1" * 40, "a" * 300, "no-break\u202fspace", "æøå ÆØÅ ŁłŃ", "@user #tag $5 €6 %7 ^8 &9 *0",
]

CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CL100K.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CODE = (r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")


def write(name, tokenizer, change=None):
    data = json.loads(tokenizer.to_str())
    if change:
        change(data)
        tokenizer = Tokenizer.from_str(json.dumps(data))
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    (FOLDER / f"{name}.json").write_text(json.dumps({
        "library": f"tokenizers {tokenizers.__version__}",
        "tokenizer": data,
        "texts": TEXTS,
        "ids": ids,
        "special_ids": [tokenizer.encode(text).ids for text in TEXTS],
        "decoded": [tokenizer.decode(i, skip_special_tokens=False) for i in ids],
    }, ensure_ascii=True, separators=(",", ":")) + "\n")


def byte_bpe(splits, size=700, **model):
    tokenizer = Tokenizer(m.BPE(**model))
    tokenizer.pre_tokenizer = p.Sequence([*splits, p.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = d.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, t.BpeTrainer(
        vocab_size=size, initial_alphabet=p.ByteLevel.alphabet(), special_tokens=["<|end|>", "<s>", "</s>"],
        show_progress=False))
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    return p.Split(Regex(pattern), behavior, invert)


def make_bpe():
    llama = byte_bpe([split(CL100K)])
    llama.post_processor = post.Sequence([post.ByteLevel(), post.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", llama.token_to_id("<s>"))])])
    write("bpe_llama3", llama)
    # Words that are tokens, whatever their merges say.
    write("bpe_ignore_merges", llama, lambda data: data["model"].update(
        ignore_merges=True, merges=data["model"]["merges"][::2] and
        [pair for i, pair in enumerate(data["model"]["merges"]) if i % 7 != 3]))

    gpt2 = Tokenizer(m.BPE())
    gpt2.pre_tokenizer = p.ByteLevel(add_prefix_space=True)
    gpt2.decoder = d.ByteLevel()
    gpt2.train_from_iterator(CORPUS, t.BpeTrainer(
        vocab_size=600, initial_alphabet=p.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"],
        show_progress=False))
    gpt2.post_processor = post.RobertaProcessing(("</s>", 1), ("<s>", 0))
    gpt2.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    write("bpe_gpt2", gpt2)

    qwen = byte_bpe([split(QWEN2, "removed", True)])
    qwen.normalizer = n.NFC()
    qwen.add_tokens([AddedToken("<sp>", lstrip=True, rstrip=True, normalized=False),
                     AddedToken("sold", single_word=True), AddedToken("Gäste", normalized=True)])
    write("bpe_qwen2", qwen)
    write("bpe_o200k", byte_bpe([split(O200K)]))
    write("bpe_deepseek", byte_bpe([split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(CODE)]))


def make_character_bpe():
    llama = Tokenizer(m.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    llama.normalizer = n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")])
    llama.decoder = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    # No pre-tokenizer to train with: merges learn from the English alone, the rest falls back.
    llama.train_from_iterator(ENGLISH, t.BpeTrainer(
        vocab_size=700, limit_alphabet=60, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]))
    llama.post_processor = post.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    write("bpe_byte_fallback", llama)
    write("bpe_unknown", llama, lambda data: data["model"].update(byte_fallback=False))
    write("bpe_unknown_apart", llama,
          lambda data: data["model"].update(byte_fallback=False, fuse_unk=False))

    clip = Tokenizer(m.BPE(unk_token="<|end|>", end_of_word_suffix="</w>"))
    clip.normalizer = n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()])
    clip.pre_tokenizer = p.Sequence([split(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
                                           "removed", True)])
    clip.decoder = d.BPEDecoder("</w>")
    clip.train_from_iterator(ENGLISH, t.BpeTrainer(vocab_size=400, end_of_word_suffix="</w>",
                                                   special_tokens=["<|end|>"], show_progress=False))
    write("bpe_suffix", clip)
    prefix = Tokenizer(m.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    prefix.pre_tokenizer = p.Whitespace()
    prefix.decoder = d.WordPiece("##")
    prefix.train_from_iterator(ENGLISH, t.BpeTrainer(vocab_size=400, continuing_subword_prefix="##",
                                                     special_tokens=["[UNK]"], show_progress=False))
    write("bpe_prefix", prefix)


def make_words():
    bert = Tokenizer(m.WordPiece(unk_token="[UNK]"))
    bert.normalizer = n.BertNormalizer()
    bert.pre_tokenizer = p.BertPreTokenizer()
    bert.decoder = d.WordPiece()
    bert.train_from_iterator(CORPUS, t.WordPieceTrainer(
        vocab_size=600, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    bert.post_processor = post.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    write("word_piece", bert)
    level = Tokenizer(m.WordLevel(unk_token="<unk>"))
    level.normalizer = n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase(), n.Strip()])
    level.pre_tokenizer = p.Sequence([p.WhitespaceSplit(), p.Punctuation("contiguous"),
                                      p.Digits(individual_digits=True)])
    level.train_from_iterator(CORPUS, t.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False))
    write("word_level", level)


def charsmap():
    """A small table of replacements, made by SentencePiece itself."""
    rules = FOLDER / "rules.tsv"
    rows = [("FB01", "66 69"), ("FF41", "61"), ("2460", "31"), ("61 301", "E1"), ("65 301", "E9"),
            ("AD", ""), ("200B", ""), ("9", "20"), ("3000", "20"), ("A0", "20"), ("212B", "C5"),
            ("1F3FD", "2B"), ("41 30A", "C5"), ("E33", "E4D E32")]
    rules.write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=400, model_type="unigram",
        normalization_rule_tsv=os.path.relpath(rules),  # which the model keeps
        hard_vocab_limit=False, minloglevel=2)
    rules.unlink()
    return model.getvalue()


def field(data, number):
    """The bytes of a protobuf's field."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            size = varint()
            if key >> 3 == number:
                return data[at:at + size]
            at += size
        elif key & 7 == 0:
            varint()
        else:
            at += {1: 8, 5: 4}[key & 7]
    return b""


def make_unigram():
    model = charsmap()
    table = field(field(model, 3), 2)  # normalizer_spec.precompiled_charsmap
    unigram = Tokenizer(m.Unigram())
    unigram.normalizer = n.Sequence([n.Precompiled(table), n.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = p.Metaspace()
    unigram.decoder = d.Metaspace()
    unigram.train_from_iterator(CORPUS, t.UnigramTrainer(
        vocab_size=500, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False))
    unigram.post_processor = post.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    write("unigram", unigram)

    def fall_back(data):
        data["model"]["byte_fallback"] = True
        data["model"]["vocab"] += [[f"<0x{i:02X}>", -20.0] for i in range(256)]
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                                 "split": False}
        data["added_tokens"].append({"id": len(data["model"]["vocab"]), "content": "<sp>",
                                     "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False, "special": False})
        data["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁",
                                       "prepend_scheme": "first", "split": False}]}

    write("unigram_fallback", unigram, fall_back)
    (FOLDER / "sentencepiece.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [processor.encode(text) for text in TEXTS]
    (FOLDER / "sentencepiece.json").write_text(json.dumps({
        "library": f"sentencepiece {sentencepiece.__version__}", "texts": TEXTS, "ids": ids,
        "decoded": [processor.decode(i) for i in ids]}, separators=(",", ":")) + "\n")
    return table


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return str(value)


def config(component):
    return json.loads(component.__getstate__())


def make_components(table):
    # Planes 0 and 1, where nearly all of Unicode is, and what follows sparsely.
    codes = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000 and (c < 0x20000 or c % 512 < 4)]
    every = [" ".join(f"a{chr(c)}b 1" for c in codes[i:i + 256]) for i in range(0, len(codes), 256)]
    rows = []
    for x in [n.NFC(), n.NFD(), n.NFKC(), n.NFKD(), n.Lowercase(), n.StripAccents(), n.Strip(),
              n.Strip(left=False), n.Nmt(), n.BertNormalizer(), n.BertNormalizer(strip_accents=False),
              n.BertNormalizer(False, False, True, False), n.Prepend("▁"), n.Replace(" ", "▁"),
              n.Replace(Regex(r"\s+"), " "), n.Replace(Regex(r"\w+"), "w"), n.ByteLevel(),
              n.Replace(Regex(r"[^\w\S]|\bm|[\S\d]\B"), "*"), n.Replace(Regex(r"^.|.$"), ""),
              n.Replace(Regex(r"(?m:a.)|(?i:THE)|\h{2}"), "_"), n.Replace(Regex("x*"), "-"),
              n.Precompiled(table), n.Sequence([n.NFKC(), n.Lowercase()])]:
        rows.append({"kind": "normalizer", "config": config(x), "in": TEXTS,
                     "out": [x.normalize_str(text) for text in TEXTS],
                     "every": fnv("".join(map(x.normalize_str, every)))})
    for x in [p.ByteLevel(add_prefix_space=False), p.ByteLevel(), p.Whitespace(), p.WhitespaceSplit(),
              p.BertPreTokenizer(), p.Punctuation(), p.Digits(), p.Digits(individual_digits=True),
              p.CharDelimiterSplit("i"), p.Metaspace(), p.Metaspace(prepend_scheme="never"),
              p.Metaspace(prepend_scheme="first", split=False), p.FixedLength(3), p.UnicodeScripts(),
              *[split(r"\p{L}+", behavior, invert) for invert in (False, True) for behavior in
                ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")],
              *[p.Punctuation(behavior) for behavior in
                ("removed", "merged_with_previous", "merged_with_next", "contiguous")],
              p.Split(" ", "merged_with_next"), split(r"\d|\s(?=\w)"), split("[^\\P{L}a-f]|[\\W&]"),
              split(CL100K), split(QWEN2), split(O200K), split(CODE),
              p.Sequence([p.WhitespaceSplit(), p.Punctuation(), p.Digits(True), p.Metaspace()])]:
        every_out = ["\u0001".join(w for w, _ in x.pre_tokenize_str(text)) for text in every]
        rows.append({"kind": "pre_tokenizer", "config": config(x), "in": TEXTS,
                     "out": [[w for w, _ in x.pre_tokenize_str(text)] for text in TEXTS],
                     "every": fnv("\u0002".join(every_out))})
    lists = [["Hello", "Ġworld", "!"], ["▁He", "llo", "▁wor▁ld"], ["a", "##b", "c", ".", "##'s", "do not"],
             ["<0xE4>", "<0xB8>", "<0xAD>", "x", "<0xFF>", "<0xC3>"], ["hel", "lo</w>", "you</w>"], [],
             ["h", "h", "e", "<pad>", "l", "<pad>", "l", "|", "o"], [" lead", "  two", "end  "],
             ["Ã", "©", "<sp>", "Ä", "中"], ["<0xZZ>", "<0x4>", "<0x041>"]]
    for x in [d.ByteLevel(), d.WordPiece(), d.WordPiece("##", False), d.Metaspace(),
              d.Metaspace(prepend_scheme="never"), d.BPEDecoder(), d.ByteFallback(), d.Fuse(), d.CTC(),
              d.Strip(" ", 1, 0), d.Replace("l", "L"),
              d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])]:
        rows.append({"kind": "decoder", "config": config(x), "in": lists,
                     "out": [x.decode(tokens) for tokens in lists]})
    # One row a line; texts are the same for all and stand once.
    for row in rows:
        if row["kind"] != "decoder":
            del row["in"]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (FOLDER / "components.json").write_text(
        f'{{"library":"tokenizers {tokenizers.__version__}",\n"texts":{json.dumps(TEXTS)},\n'
        f'"rows":[\n{lines}\n]}}\n')


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    make_bpe()
    make_character_bpe()
    make_words()
    make_components(make_unigram())


main()
