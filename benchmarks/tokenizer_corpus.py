#!/usr/bin/env python3
"""Makes a text of English prose for the tokenizer's benchmarks from what a Debian machine has: manual
pages, /usr/share/doc, Perl's pod, the docstrings and documents of Python packages, and the
documentation inside of botocore where that is installed. Paragraphs are kept once each, and only if
they read like prose; they come in a random order, so that every part of the file has everything.

    python3 benchmarks/tokenizer_corpus.py OUT.txt [MEGABYTES]

OUT.txt has one paragraph after the other, OUT.jsonl beside it a document of some paragraphs a line."""
import ast
import glob
import gzip
import html
import json
import random
import re
import sys
import sysconfig
from pathlib import Path

COMMON = set("the of to and a in is that for it as with be by on not this are or from at which you can if".split())


def prose(paragraph):
    words = paragraph.split()
    if len(paragraph) < 80 or len(words) < 12:
        return False
    letters = sum(c.isalpha() or c == " " for c in paragraph)
    common = sum(word.lower() in COMMON for word in words)
    return letters > 0.85 * len(paragraph) and common > 0.15 * len(words)


def read(path):
    data = Path(path).read_bytes()
    return (gzip.decompress(data) if str(path).endswith(".gz") else data).decode("utf-8", "replace")


def from_roff(text):
    text = re.sub(r"\\f(\[\w*\]|\(..|.)", "", text)
    text = re.sub(r"\\\((.)(.)|\\\[\w+\]", "", text)
    text = text.replace("\\-", "-").replace("\\&", "").replace("\\ ", " ").replace("\\e", "\\")
    lines = []
    for line in text.splitlines():
        if line[:3] in (".B ", ".I ", ".BR", ".IR"):
            lines.append(line[3:].strip())
        elif line[:1] in (".", "'"):
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def from_html(text):
    return html.unescape(re.sub(r"<[^<>]*>", "", re.sub(r"</(p|li|div|h\d|dd|tr|pre)>|<br", "\n\n<", text)))


def docstrings(text):
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def documentation(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "documentation" and isinstance(value, str):
                yield from_html(value)
            else:
                yield from documentation(value)
    elif isinstance(node, list):
        for value in node:
            yield from documentation(value)


def sources():
    """(name, texts) one after the other."""
    def files(*patterns):
        return sorted(path for p in patterns for path in glob.glob(p, recursive=True) if Path(path).is_file())

    packages = sorted({sysconfig.get_paths()[name] for name in ("stdlib", "purelib")} | {"/usr/lib/python3"})
    yield "manual pages", (from_roff(read(f)) for f in files("/usr/share/man/man[0-9]*/*"))
    yield "/usr/share/doc", (from_html(read(f)) if ".htm" in f else read(f) for f in files(
        "/usr/share/doc/**/*.txt*", "/usr/share/doc/**/*.html", "/usr/share/doc/**/README*",
        "/usr/share/doc/**/copyright", "/usr/share/doc/**/NEWS*", "/usr/share/doc/**/*.md*",
        "/usr/share/common-licenses/*"))
    yield "pod of Perl", (read(f) for f in files("/usr/share/perl*/**/*.p[mo]*", "/usr/lib/*/perl*/**/*.p[mo]*"))
    for folder in packages:
        yield f"docstrings in {Path(folder).name}", (
            text for f in files(folder + "/**/*.py") for text in docstrings(read(f)))
        yield f"documents in {Path(folder).name}", (read(f) for f in files(
            folder + "/**/*.md", folder + "/**/*.rst", folder + "/**/*.txt", folder + "/**/METADATA"))
        yield "botocore", (text for f in files(folder + "/botocore/data/**/*.json*")
                           for text in documentation(json.loads(read(f))))


def main():
    out, most = Path(sys.argv[1]), float(sys.argv[2]) * 1e6 if len(sys.argv) > 2 else 64e6
    seen, kept = set(), []
    for name, texts in sources():
        size = 0
        for text in texts:
            for paragraph in re.split(r"\n\s*\n", text):
                paragraph = "\n".join(line.strip() for line in paragraph.strip().splitlines())
                if prose(paragraph) and paragraph not in seen:
                    seen.add(paragraph)
                    kept.append(paragraph)
                    size += len(paragraph.encode())
        print(f"{size / 1e6:8.1f} MB of {name}")
    rng = random.Random(1)
    rng.shuffle(kept)
    documents, document, total = [], [], 0
    for paragraph in kept:
        document.append(paragraph)
        total += len(paragraph.encode()) + 2
        if rng.random() < 0.1:  # ten paragraphs on average
            documents.append("\n\n".join(document))
            document = []
        if total >= most:
            break
    documents.append("\n\n".join(document))
    text = "\n\n".join(documents) + "\n"
    out.write_text(text)
    out.with_suffix(".jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in documents if d))
    print(f"{len(text.encode()) / 1e6:8.1f} MB in {len(documents)} documents: {out}")


main()
