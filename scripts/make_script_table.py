#!/usr/bin/env python3
"""Writes src/text/tokenizer/script_table.cpp: the scripts of Unicode as the pre-tokenizer UnicodeScripts
of the Hugging Face tokenizers library sees them, found by asking it where it cuts.

    python3 scripts/make_script_table.py > src/text/tokenizer/script_table.cpp"""
import tokenizers
from tokenizers import pre_tokenizers as p

SCRIPTS = p.UnicodeScripts()


def same(a, b):
    return len(SCRIPTS.pre_tokenize_str(a + b)) == 1


def wrap(words):
    lines, line = [], "   "
    for word in words:
        if len(line) + len(word) + 2 > 99:
            lines.append(line)
            line = "   "
        line += " " + word + ","
    return "\n".join(lines + [line])


def main():
    known = {1: "a", 2: "б"}  # a character of each script, by our numbers; 0 goes with any script
    runs, last = [], None
    for c in range(0x110000):
        char = "\0" if 0xD800 <= c < 0xE000 else chr(c)
        any_script = same("a", char) and same("б", char)
        if any_script if last == 0 else last and not any_script and same(known[last], char):
            continue
        number = [i for i, other in known.items() if same(other, char)]
        if not number:
            known[len(known) + 1] = char
            number = [len(known)]
        number = number[0] if len(number) == 1 else 0
        if number != last:
            runs.append(c * 256 + number)
        last = number
    print(f"""// Written by scripts/make_script_table.py from tokenizers {tokenizers.__version__}.
// clang-format off
#include "data/tokenizer/unicode_tables.h"

#include <iterator>

namespace phx {{

// Where a run of one of {len(known)} scripts begins, times 256, plus the script's number.
const uint32_t kScriptRuns[] = {{
{wrap(map(str, runs))}
}};
const size_t kNumScriptRuns = std::size(kScriptRuns);

}}  // namespace phx""")


main()
