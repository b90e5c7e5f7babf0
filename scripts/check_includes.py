#!/usr/bin/env python3
"""Fails if a file includes what it may not, or if a header does not compile on its own.

    scripts/check_includes.py [--root DIR] [--quick] [HEADER...]

--quick compiles no header; HEADER... compiles those alone.

The table of rooms is cmake/Rooms.cmake, the one that CMake links by: `phx_room(b DEPENDS a)` lets b include a and what
a may include. The rules:
 1. Every folder of src/ is a room of the table, every room has a folder and a README.md, and the table has no cycle.
 2. A file of src/ROOM or tests/ROOM includes the headers of ROOM and of the rooms under it, no others. Benchmarks,
    fuzzers and examples may include every room.
 3. Headers are included as "phalanx/room/name.h", by the name they have where the library is installed. Only helpers of
    tests and benchmarks are included by their path in tests/ or beside the file, and what the build makes by the name that
    a file of cmake/ gives it. Every such file exists.
 4. No header includes itself, directly or through others.
 5. CUDA's headers and the headers of cuda/ folders are included from cuda/ folders only, or where the preprocessor asks
    for CUDA: machines without CUDA compile everything else.
 6. Every header compiles when it is the first and only thing in a file, without precompiled headers. Headers of cuda/
    folders are compiled where CUDA's headers are installed; .cuh files are left to nvcc. A header that compiled is not
    compiled again until it or a header of ours that it includes changes: build/headers/ has the hashes.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)")
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|nccl|cub/|cute/|nvtx|mma\.h|cooperative_groups)")
SOURCES = (".h", ".cpp", ".cu", ".cuh")
ANY_ROOM = ("benchmarks", "fuzz", "examples")


def read_table(path):
    """Rooms.cmake -> {room: rooms it links directly}"""
    text = re.sub(r"#.*", "", path.read_text())
    table = {}
    for words in re.findall(r"\bphx_room\(([^)]*)\)", text):
        name, *rest = words.split()
        table[name] = []
        keyword = None
        for word in rest:
            if word.isupper():
                keyword = word
            elif keyword == "DEPENDS":
                table[name].append(word)
    return table


def rooms_under(table, problems):
    """{room: all rooms that it may include}"""
    under = {}

    def visit(room, path):
        if room in path:
            problems.append(f"cmake/Rooms.cmake: a cycle: {' -> '.join(path + [room])}")
            return set()
        if room not in under:
            found = set()
            for other in table[room]:
                if other not in table:
                    problems.append(f"cmake/Rooms.cmake: {room} depends on {other}, which is no room")
                    continue
                found |= {other} | visit(other, path + [room])
            under[room] = found
        return under[room]

    for room in table:
        visit(room, [])
    return under


def includes_of(path):
    """(line number, name, in quotes, where the preprocessor asks for CUDA) of each include"""
    conditions, found = [], []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if condition := CONDITION.match(line):
            word, rest = condition.groups()
            if word in ("if", "ifdef", "ifndef"):
                conditions.append("CUDA" in rest and word != "ifndef" and "!" not in rest)
            elif word == "endif":
                conditions.pop()
            else:
                conditions[-1] = "CUDA" in rest
        elif include := INCLUDE.match(line):
            quoted, system = include.groups()
            found.append((number, quoted or system, quoted is not None, any(conditions)))
    return found


def may_include(table, under, room, other):
    if other == "support":  # helpers of all tests
        return True
    if room == "support":
        return other in ("base", "core")  # tests/support is linked to core
    return room not in table or other == room or other in under[room]


def check_include(root, path, table, under, include):
    """What is wrong with one include: a text, or None"""
    number, name, quoted, asks_for_cuda = include
    parts = path.relative_to(root).parts
    in_cuda_folder = "cuda" in parts or path.suffix in (".cu", ".cuh")
    if not quoted:
        if name.startswith("phalanx/"):
            return f'<{name}>: our own headers are included with quotes: "{name}"'
        if CUDA_HEADER.match(name) and parts[0] == "src" and not (in_cuda_folder or asks_for_cuda):
            return f"<{name}>: CUDA's headers are included from cuda/ folders only"
        return None
    if not name.startswith("phalanx/"):
        helper = root / "tests" / name if parts[0] == "tests" else path.parent / name
        room = name.split("/")[0]
        if any(name in file.read_text() for file in (root / "cmake").glob("*.cmake")):
            return None  # the build makes it
        if parts[0] != "src" and helper.is_file():
            if parts[0] == "tests" and not may_include(table, under, parts[1], room):
                return f'"{name}": tests of {parts[1]} may not include helpers of {room}'
            return None
        if room in table and (root / "src" / name).is_file():
            return f'"{name}": headers are included as "phalanx/{name}"'
        if (path.parent / name).is_file():
            inside = "/".join(path.parent.relative_to(root / "src").parts) if parts[0] == "src" else ""
            return f'"{name}": headers are included as "phalanx/{inside}/{name}"'
        return f'"{name}": there is no such file'
    inside = name.removeprefix("phalanx/")
    if not (root / "src" / inside).is_file():
        return f'"{name}": src/{inside} does not exist'
    other = inside.split("/")[0]
    if "cuda" in inside.split("/") and parts[0] == "src" and not (in_cuda_folder or asks_for_cuda):
        return f'"{name}": headers of cuda/ folders are included from cuda/ folders only'
    if parts[0] in ANY_ROOM:
        return None
    if not may_include(table, under, parts[1], other):
        allowed = ", ".join(sorted(under.get(parts[1], []))) or "no other room"
        return f'"{name}": {parts[1]} may include {allowed}, but not {other}'
    return None


def header_cycles(root, headers):
    """Cycles of includes between headers, each as a text"""
    graph = {}
    for path in headers:
        names = [name for _, name, quoted, _ in includes_of(path) if quoted and name.startswith("phalanx/")]
        graph[path] = [root / "src" / name.removeprefix("phalanx/") for name in names]
    done, cycles = set(), []

    def visit(path, trail):
        if path in trail:
            cycles.append(" -> ".join(str(p.relative_to(root)) for p in trail[trail.index(path):] + [path]))
        elif path not in done:
            for other in graph.get(path, []):
                visit(other, trail + [path])
            done.add(path)

    for path in headers:
        visit(path, [])
    return cycles


def content_hash(root, path, compiler):
    """A hash of a header, of ours that it includes, and of the compiler's version"""
    digest, seen, left = hashlib.sha256(compiler), set(), [path]
    while left:
        header = left.pop()
        if header not in seen and header.is_file():
            seen.add(header)
            left += [root / "src" / name.removeprefix("phalanx/") for _, name, quoted, _ in includes_of(header) if quoted]
    for header in sorted(seen):
        digest.update(str(header.relative_to(root)).encode() + header.read_bytes())
    return digest.hexdigest()


def compile_headers(root, headers):
    """Compiles each header alone; returns what the compiler says about those that fail, and how many passed"""
    compiler = os.environ.get("CXX", "g++")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    stamps = root / "build/headers"
    stamps.mkdir(parents=True, exist_ok=True)
    cuda = next((p for p in ("/usr/local/cuda/include", "/usr/include") if os.path.exists(p + "/cuda_runtime.h")), None)
    with tempfile.TemporaryDirectory() as folder:
        os.symlink((root / "src").resolve(), folder + "/phalanx")
        flags = ["-std=c++20", "-fsyntax-only", "-x", "c++", "-I", folder]
        if cuda:
            flags += ["-isystem", cuda, "-isystem", str(root / ".deps/cudnn-frontend/include")]

        def compile_one(path):
            name = "phalanx/" + str(path.relative_to(root / "src"))
            stamp = stamps / content_hash(root, path, version)
            if stamp.exists():
                return None
            result = subprocess.run([compiler, *flags, "-include", name, "/dev/null"], capture_output=True, text=True)
            if result.returncode == 0:
                stamp.touch()
                return None
            errors = [line for line in result.stderr.splitlines() if "error:" in line]
            return f"{path.relative_to(root)} does not compile on its own: {(errors or [result.stderr])[0]}"

        wanted = [h for h in headers if h.suffix == ".h" and (cuda or "cuda" not in h.relative_to(root).parts)]
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            failures = [text for text in pool.map(compile_one, wanted) if text]
    return failures, len(wanted)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("headers", nargs="*", type=pathlib.Path)
    options = arguments.parse_args()
    root = options.root.resolve()
    problems = []
    table = read_table(root / "cmake/Rooms.cmake")
    under = rooms_under(table, problems)
    if not problems:
        folders = {p.name for p in (root / "src").iterdir() if p.is_dir()}
        problems += [f"src/{name} is not in cmake/Rooms.cmake" for name in sorted(folders - set(table))]
        problems += [f"cmake/Rooms.cmake: src/{name} does not exist" for name in sorted(set(table) - folders)]
        problems += [f"src/{name} has no README.md" for name in sorted(folders)
                     if not (root / "src" / name / "README.md").is_file()]
    if problems:  # the files cannot be judged by a wrong table
        sys.exit("\n".join(problems))

    files = sorted(p for top in ("src", "tests", *ANY_ROOM) for p in (root / top).rglob("*")
                   if p.suffix in SOURCES)
    for path in files:
        for include in includes_of(path):
            if problem := check_include(root, path, table, under, include):
                problems.append(f"{path.relative_to(root)}:{include[0]}: {problem}")
    headers = [p for p in files if p.suffix in (".h", ".cuh") and p.is_relative_to(root / "src")]
    problems += [f"headers include each other: {cycle}" for cycle in header_cycles(root, headers)]
    compiled = 0
    if not options.quick and not problems:
        chosen = [root / header for header in options.headers] or headers
        problems, compiled = compile_headers(root, chosen)
    if problems:
        sys.exit("\n".join(problems))
    print(f"check_includes: {len(files)} files in {len(table)} rooms include what they may; "
          f"{compiled} headers compile on their own")


if __name__ == "__main__":
    main()
