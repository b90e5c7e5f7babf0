"""Writes megatron_flags.txt: every flag of Megatron-LM's own parser, with what stands after it.

    python3 tests/data/megatron_flags.py MEGATRON_LM > tests/data/megatron_flags.txt

MEGATRON_LM is a checkout whose requirements are installed. A line is `--name switch`, `--name value`
or `--name list`.
"""

import argparse
import sys
import typing

import typing_extensions

if not hasattr(typing, "override"):  # Python 3.11
    typing.override = typing_extensions.override
sys.path.insert(0, sys.argv[1])

from megatron.training.arguments import add_megatron_arguments  # noqa: E402

parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
parser = add_megatron_arguments(parser) or parser
kinds = {0: "switch", None: "value", 1: "value"}
for name, values in sorted((n, a.nargs) for a in parser._actions for n in a.option_strings):
    print(name, kinds.get(values, "list"))
