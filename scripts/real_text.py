#!/usr/bin/env python3
"""Reads documentation out of Debian packages and writes it as JSON lines of plain text, for scripts/real_text.sh.

    python3 scripts/real_text.py OUT_FOLDER MEGABYTES PACKAGE.deb...

Pages, manuals, info files and dictionaries become text; markup, navigation and what repeats go. A paragraph is kept where
it comes first, over all packages. One document in 40, by the hash of its text, is held out for validation. Writes train.jsonl,
valid.jsonl and sources.md, a table of what each package gave.
"""
import gzip
import hashlib
import html
import json
import os
import re
import subprocess
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor

HELD_OUT = 40             # one document in so many is for validation
LARGEST = 4 << 20         # bytes of a file: larger ones are indices and tables
SHORTEST = 300            # characters of a document: shorter ones are stubs
PIECE = 200_000           # characters of a document: longer texts (dictionaries, books) are cut at paragraphs
ENGLISH = frozenset("the of to and a is in that for it be are as this with on or by an not if from which can".split())

# Parts of a page that are not its text, and tags that end a paragraph or a line.
HIDDEN = re.compile(r"<(script|style|head|nav|footer|svg|math|select|form|button)\b.*?</\1\s*>|<!--.*?-->", re.S | re.I)
PARAGRAPH = re.compile(r"</?(p|div|h[1-6]|ul|ol|dl|table|section|article|blockquote|hr|body|header|main|title|dt)\b[^>]*>", re.I)
LINE = re.compile(r"<(br|li|tr|dd|/tr|/li|/dd)\b[^>]*>", re.I)
CELL = re.compile(r"</t[dh]\s*>", re.I)
TAG = re.compile(r"<[a-zA-Z/!?][^<>]*>")
PRE = re.compile(r"<pre\b[^>]*>(.*?)</pre\s*>", re.S | re.I)
FOREIGN = re.compile(r"[/._-](ar|bg|ca|cs|da|de|el|eo|es|et|eu|fa|fi|fr|gl|he|hr|hu|id|it|ja|jp|ko|lt|lv|nb|nl|nn|no|pl|pt|pt[-_]br|"
                     r"ro|ru|sk|sl|sr|sv|tr|uk|vi|zh|zh[-_](cn|tw|hans|hant))([/._-]|$)", re.I)
PAGES = (".html", ".htm", ".xhtml", ".page")
PLAIN = (".txt", ".rst", ".md", ".text", ".asciidoc", ".adoc")


def page_text(page):
    page = HIDDEN.sub(" ", page)
    kept = []

    def keep(match):  # preformatted text keeps its lines
        kept.append(html.unescape(TAG.sub("", match.group(1))).strip("\n"))
        return f"<p>\x00{len(kept) - 1}\x00<p>"

    page = re.sub(r"\s+", " ", PRE.sub(keep, page))
    page = LINE.sub("\n", PARAGRAPH.sub("\n\n", CELL.sub(" ", page)))
    page = html.unescape(TAG.sub("", page))
    page = page.replace("\u00b6", "").replace("\u00a0", " ")
    return re.sub("\x00(\\d+)\x00", lambda match: kept[int(match.group(1))], page)


MAN_FONT = re.compile(r"\\f(\(..|\[[^]]*\]|.)|\\[&|^/,c]|\\s[-+]?\d")
MAN_MACRO = re.compile(r"^[.'](?:B|I|BR|BI|IB|IR|RB|RI|SM|SB|Nm|Fl|Ar|Pa|Xr|Em|Sy|Dv|Ev|Fn|Ft|Fa|Va|Vt|Ic|Li|Ql|Dq|Sq|Op|SH|SS|Sh|Ss|It)(?: |$)")


def manual_text(page):
    """A manual in roff: fonts and requests go, headings and words stay."""
    lines = []
    for line in page.split("\n"):
        if line.startswith((".\\\"", "'\\\"", ".de", ".if", ".ie", ".el", ".ds", ".nr", ".tr", ".TH", ".so")):
            continue
        if re.match(r"^\.(PP|P|LP|TP|IP|HP|Pp|sp|SH|SS|Sh|Ss|RS|RE|nf|fi|EX|EE|Bl|El)\b", line):
            lines.append("")
        if line.startswith((".", "'")):
            match = MAN_MACRO.match(line)
            line = line[match.end():].replace('"', "") if match else ""
            if not line:
                continue
        line = MAN_FONT.sub("", line)
        line = line.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\").replace("\\ ", " ").replace("\\(co", "(c)")
        lines.append(line.replace("\\(dq", '"').replace("\\(bu", "*").replace("\\(em", " - ").replace("\\(en", "-"))
    return "\n".join(lines)


def info_text(text):
    return "\n\n".join(re.sub(r"^[^\n]*\n", "", node, count=1) for node in text.split("\x1f")[1:])


def pod_text(text):
    text = re.sub(r"^=(over|back|cut|begin|end|for|encoding|pod).*$", "", text, flags=re.M)
    text = re.sub(r"^=(head\d|item) *", "", text, flags=re.M)
    return re.sub(r"[A-Z]<([^<>]*)>", r"\1", re.sub(r"E<([a-z]+)>", r"&\1;", text))


def text_of(name, data):
    """(kind, text) of a file by its name, or nothing if it is none that we read."""
    if name.endswith((".gz", ".dz")):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError):
            return None
        name = re.sub(r"\.gz$", "", name)
    if len(data) > LARGEST and not name.endswith(".dict.dz"):
        return None
    text = data.decode("utf-8", "replace")
    if text.count("\ufffd") > len(text) / 1000:
        text = data.decode("latin-1")
    if name.endswith(PAGES):
        return "page", page_text(text)
    if name.endswith(".pod"):
        return "pod", pod_text(text)
    if re.search(r"/man\d/[^/]+\.\d\w*$", name):
        return "manual", manual_text(text)
    if re.search(r"\.info(-\d+)?$", name):
        return "info", info_text(text)
    if name.endswith(PLAIN) or name.endswith(".dict.dz") or re.search(r"/vim\d*/doc/|/fortunes/[a-z-]+$", name):
        return "plain", text
    return None


def cleaned(text):
    """Paragraphs: lines without trailing space, no control characters, no tables of contents drawn with dots."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text.replace("\r\n", "\n"))
    text = re.sub(r"[ \t]+\n", "\n", text)
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = paragraph.strip("\n")
        if paragraph.strip() and not re.search(r"\.{8}|(\. ){6}", paragraph):
            paragraphs.append(paragraph)
    return paragraphs


def is_english(paragraphs):
    words = re.findall(r"[A-Za-z']+", " ".join(paragraphs)[:20_000].lower())
    letters = sum(map(len, paragraphs))
    plain = sum(len(paragraph.encode()) for paragraph in paragraphs)
    return len(words) >= 40 and sum(word in ENGLISH for word in words) > 0.12 * len(words) and plain < 1.05 * letters


def documents_of(package):
    """The package's name, and the paragraphs of every file of it that is a text in English."""
    archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    found = {kind: [] for kind in ("page", "pod", "manual", "info", "plain")}
    with tarfile.open(fileobj=archive.stdout, mode="r|") as files:
        for member in files:
            if not member.isfile() or FOREIGN.search(member.name) or re.search(r"copyright|changelog|LICENSE", member.name):
                continue
            if member.size > 4 * LARGEST and not member.name.endswith(".dict.dz"):
                continue
            base = os.path.basename(member.name)
            if re.search(r"^(genindex|search|py-modindex|index-all|functions_|globals_|classes|hierarchy|annotated)", base):
                continue
            text = text_of(member.name, files.extractfile(member).read())
            if text is None:
                continue
            paragraphs = cleaned(text[1])
            if is_english(paragraphs):
                found[text[0]].append(paragraphs)
    archive.wait()
    # Packages often have the same text in several forms (pages and their sources): take the first form that is a good part.
    sizes = {kind: sum(len(p) for document in documents for p in document) for kind, documents in found.items()}
    kind = next((kind for kind, size in sizes.items() if size > 0.2 * sum(sizes.values())), "plain")
    return os.path.basename(package).split("_")[0], found[kind]


def kept_paragraphs(paragraphs, seen):
    """Those that were not seen before. A long paragraph stands once; a short one (a heading) may come again, but not on every page;
    a single word is mostly a link."""
    kept = []
    for paragraph in paragraphs:
        key = hashlib.blake2b(re.sub(r"\W+", " ", paragraph).encode(), digest_size=8).digest()
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= (1 if len(paragraph) >= 60 or " " not in paragraph.strip() else 8):
            kept.append(paragraph)
    return kept


def pieces_of(paragraphs):
    pieces, length = [[]], 0
    for paragraph in paragraphs:
        pieces[-1].append(paragraph)
        length += len(paragraph)
        if length > PIECE:
            pieces.append([])
            length = 0
    texts = ["\n\n".join(piece) for piece in pieces]
    return [text for text in texts if len(text) >= SHORTEST]


def main():
    out, limit, packages = sys.argv[1], float(sys.argv[2]) * 1e6, sorted(sys.argv[3:])
    os.makedirs(out, exist_ok=True)
    seen, texts = {}, []
    with ProcessPoolExecutor() as pool:
        for name, documents in pool.map(documents_of, packages):
            for paragraphs in documents:
                kept = kept_paragraphs(paragraphs, seen)
                if is_english(kept):
                    texts += [(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little"), name, text)
                              for text in pieces_of(kept)]
    # More than was asked for: of every package the same share goes, by the documents' hashes.
    share = min(1.0, limit / sum(len(text.encode()) for _, _, text in texts))
    table, totals = {}, {"train": [0, 0], "valid": [0, 0]}
    files = {split: open(f"{out}/{split}.jsonl", "w") for split in totals}
    for number, name, text in texts:
        if number // HELD_OUT > share * (2**32 // HELD_OUT):
            continue
        split = "valid" if number % HELD_OUT == 0 else "train"
        files[split].write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        for sums in (totals[split], table.setdefault(name, [0, 0])):
            sums[0] += 1
            sums[1] += len(text.encode())
    for file in files.values():
        file.close()
    with open(f"{out}/sources.md", "w") as sources:
        sources.write("| package | documents | MB of text |\n|---|---|---|\n")
        rows = sorted(table.items(), key=lambda row: -row[1][1]) + list(totals.items())
        sources.writelines(f"| {name} | {count} | {size / 1e6:.2f} |\n" for name, (count, size) in rows)
    print(open(f"{out}/sources.md").read())


if __name__ == "__main__":
    main()
