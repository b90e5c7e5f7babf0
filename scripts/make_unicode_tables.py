#!/usr/bin/env python3
"""Writes src/text/tokenizer/unicode_tables.cpp: what the Hugging Face tokenizers library believes
about Unicode. Its parts follow different versions of Unicode (regular expressions 16, lower case 17,
normal forms 9 and punctuation 8 in tokenizers 0.23), and ids are the same only if ours follow suit.

    python3 scripts/make_unicode_tables.py > src/text/tokenizer/unicode_tables.cpp

Needs the PyPI packages tokenizers and unicodedata2 (of Unicode 16 or newer), and a Python of Unicode
14 (3.11): what that one does not know in lower case is listed."""
import unicodedata2 as ucd
import tokenizers
from tokenizers import Regex
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Cs Co").split()  # the order of utf8proc_category_t


def ranges(points):
    found = []
    for c in sorted(points):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def matched(pattern):
    """The code points that the library's regular expressions match."""
    text = "".join(map(chr, POINTS))
    return set(POINTS) - set(map(ord, n.Replace(Regex(pattern), "").normalize_str(text)))


def cut_at(pre_tokenizer):
    """The code points that stand alone between two letters."""
    return {c for c in POINTS if len(pre_tokenizer.pre_tokenize_str(f"a{chr(c)}b")) == 3}


def dropped(normalizer):
    return {c for c in POINTS if normalizer.normalize_str(f"a{chr(c)}") == "a"}


def wrap(words):
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > 99:
            lines.append(line)
            line = "   "
        line += " " + word + ","
    return "\n".join(lines + [line])


def print_ranges(name, points, comment):
    print(f"// {comment}\nconst CodeRange k{name}[] = {{")
    print(wrap(f"{{{a:#x}, {b:#x}}}" for a, b in ranges(points)))
    print(f"}};\nconst size_t kNum{name} = std::size(k{name});\n")


def main():
    category = {c: "Cn" for c in POINTS}
    for name in CATEGORIES[1:]:
        if name != "Cs":
            for c in matched(rf"\p{{{name}}}"):
                category[c] = name
    for c in range(0xD800, 0xE000):
        category[c] = "Cs"

    def of(*names):
        return {c for c in POINTS if category[c].startswith(names)}

    print(f"""// Written by scripts/make_unicode_tables.py from tokenizers {tokenizers.__version__}.
// clang-format off
#include "data/tokenizer/unicode_tables.h"

#include <iterator>

namespace phx {{

// Where a run of one general category begins, times 32, plus the category.
const uint32_t kCategoryRuns[] = {{""")
    runs = [c for c in range(0x110000) if c == 0 or category[c] != category[c - 1]]
    print(wrap(str(c * 32 + CATEGORIES.index(category[c])) for c in runs))
    print("};\nconst size_t kNumCategoryRuns = std::size(kCategoryRuns);\n")

    ascii_symbols = {ord(c) for c in "$+<=>^`|~"}
    print_ranges("PunctuationChanges", cut_at(p.Punctuation()) ^ (of("P") | ascii_symbols),
                 "Punctuation in pre-tokenizers differs from category P and ASCII's symbols here.")
    print_ranges("NumberChanges", cut_at(p.Digits()) ^ of("N"),
                 "Digits differs from category N here.")
    print_ranges("MarkChanges", dropped(n.StripAccents()) ^ of("M"),
                 "StripAccents differs from category M here.")
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    print_ranges("NonspacingChanges",
                 dropped(n.BertNormalizer(**{**bert, "strip_accents": True})) ^ of("Mn"),
                 "BertNormalizer's accents differ from category Mn here.")
    print_ranges("ControlChanges", dropped(n.BertNormalizer(**{**bert, "clean_text": True}))
                 ^ (of("Cc", "Cf", "Co") - {9, 10, 13} | {0xFFFD}),
                 "BertNormalizer's control characters differ from Cc, Cf, Co and U+FFFD here.")
    fresh = {c for c in POINTS if n.NFKD().normalize_str(chr(c)) != ucd.normalize("NFKD", chr(c))}
    print_ranges("UndecomposedCodes", fresh, "Too young to be decomposed by NFD and NFKD.")

    def reordered(c):
        texts = [f"a{mark}{chr(c)}{mark}" for mark in "\u0334\u0301"]
        return any(n.NFD().normalize_str(t) != ucd.normalize("NFD", t) for t in texts)

    print_ranges("UnorderedCodes", {c for c in POINTS if reordered(c)} - fresh,
                 "Marks too young to be reordered by the normal forms.")
    lower = [(c, n.Lowercase().normalize_str(chr(c))) for c in POINTS]
    young = [(c, ord(t)) for c, t in lower if len(t) == 1 and chr(c).lower() != t]
    print("// Lower case of letters that Unicode got since version 14.\n"
          "const CodePair kLowerCase[] = {")
    print(wrap(f"{{{c:#x}, {t:#x}}}" for c, t in young))
    print("};\nconst size_t kNumLowerCase = std::size(kLowerCase);\n\n}  // namespace phx")


main()
