#!/usr/bin/env python3
"""Renders chat templates with `phalanx template` and with Jinja2, and compares the bytes.

    scripts/check_templates.py FILE_OR_FOLDER ...     every .jinja file and tokenizer_config.json
    scripts/check_templates.py --random 20000         templates made up from a grammar

Each template is rendered with many chats: with and without system message, tools, thoughts, parts,
a prompt for the answer. Where Jinja2 raises an error, ours has to refuse as well. The environment is
that of the transformers package if it is installed, else the one in jinja_oracle.py. Exit code 1 if
anything differs. Needs jinja2."""

import argparse
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import jinja_oracle
from chat_samples import CHATS, COMMON, EXTRAS, MORE_CHATS, MORE_EXTRAS, VALUES
from random_templates import random_template

ROOT = pathlib.Path(__file__).parent.parent


def oracle():
    """A function (source, variables) -> text, spans of generation blocks in bytes."""
    try:
        from transformers.utils import chat_template_utils
    except ImportError:
        return "jinja_oracle.py", jinja_oracle.render

    def render(source, variables):
        template = chat_template_utils._compile_jinja_template(source)
        template.globals["strftime_now"] = jinja_oracle.NOW.strftime
        # Where there are blocks, the package needs all of these; some templates ask what is defined.
        if not re.search(r"\{%[-+]?\s*generation\b", source):
            return template.render(**variables), []
        given = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False, **variables}
        text, spans = chat_template_utils._render_with_assistant_indices(template, **given)
        return text, [[len(text[:place].encode()) for place in span] for span in spans]

    import transformers

    return f"transformers {transformers.__version__}", render


def templates_in(path):
    path = pathlib.Path(path)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.suffix in (".jinja", ".jinja2"):
            yield str(file), file.read_text()
        elif file.name == "tokenizer_config.json":
            held = json.loads(file.read_text()).get("chat_template")
            for entry in held if isinstance(held, list) else [{"name": "", "template": held}]:
                if entry["template"]:
                    yield f"{file} {entry['name']}", entry["template"]


def jobs_of(args):
    """(name, template, variables)"""
    for path in args.paths:
        for name, source in templates_in(path):
            for chat, messages in {**CHATS, **MORE_CHATS}.items():
                for extra, more in {**EXTRAS, **MORE_EXTRAS}.items():
                    yield f"{name} [{chat}, {extra}]", source, {**COMMON, "messages": messages, **more}
    generator = random.Random(args.seed)
    for number in range(args.random):
        yield f"random {number}", random_template(generator), VALUES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--random", type=int, default=0, help="how many made-up templates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phalanx", default=ROOT / "build/release/phalanx")
    parser.add_argument("--show", type=int, default=5, help="differences to print")
    args = parser.parse_args()
    name_of_oracle, reference = oracle()

    jobs = list(jobs_of(args))
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for _, source, variables in jobs:
            job = {"template": source, "variables": variables, "now": jinja_oracle.NOW.isoformat()}
            file.write(json.dumps(job) + "\n")
        file.flush()
        output = subprocess.run([args.phalanx, "template", "--batch", file.name], check=True, capture_output=True)
    answers = [json.loads(line) for line in output.stdout.splitlines()]
    assert len(answers) == len(jobs), f"{len(answers)} answers to {len(jobs)} questions"

    same = marked = refused = shown = addresses = 0
    different, unsupported = [], {}
    for (name, source, variables), answer in zip(jobs, answers):
        error = None
        try:
            # Jinja2 can change what it is given: `list | indent` adds to the list.
            expected, spans = reference(source, copy.deepcopy(variables))
        except Exception as raised:  # also a RecursionError: some templates have no end on some tools
            expected, error = None, raised
        if "error" in answer and expected is None:
            refused += 1
        elif "error" in answer and ("not supported" in answer["error"] or "64 bits" in answer["error"]):
            unsupported.setdefault(answer["error"], []).append(name)
        elif expected is not None and " at 0x" in expected and "no text of its own" in answer.get("error", ""):
            addresses += 1  # Python prints where an object lies
        elif expected is not None and answer.get("text") == expected and answer["generation"] == spans:
            same += 1
            marked += bool(spans)
        else:
            different.append(name)
            if shown < args.show:
                shown += 1
                print(f"--- {name}\n{source if name.startswith('random') else ''}")
                print("Jinja2: ", repr(error) if expected is None else (expected, spans))
                print("phalanx:", answer)
    files = len({source for _, source, _ in jobs})
    print(
        f"{files} templates, {len(jobs)} renderings against {name_of_oracle}: {same} with the same bytes "
        f"({marked} of them with the same generation blocks), "
        f"{refused} refused by both, {addresses} with addresses, {sum(map(len, unsupported.values()))} not supported, {len(different)} different"
    )
    for error, names in sorted(unsupported.items(), key=lambda item: -len(item[1]))[:20]:
        print(f"  {len(names)} x {error}   e.g. {names[0]}")
    for name in different[:40]:
        print("  different:", name)
    sys.exit(1 if different else 0)


main()
