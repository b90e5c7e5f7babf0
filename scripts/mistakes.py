"""The work behind scripts/mistakes.sh: see there for its use.

A mistake in scripts/mistakes.txt is a paragraph:

    == NAME [quick]
    what is wrong then, for the table of docs/parity.md
    file SOURCE
    test PROGRAM SUITE.NAME [VARIABLE=VALUE ...]
    - a line of the source
    + the line that replaces it

Lines are compared without their indentation. A block of - lines must occur in the file exactly once; it is replaced
by the block of + lines behind it. There may be several such pairs. A lone + deletes. "test layouts X" stands for
the parity matrix's test of the layouts whose names contain X.

A mistake is caught if its test reports a failure of itself. A mistake that does not compile, a crash and a test that
does not end are not: none of them says what is wrong.
"""

import argparse
import fcntl
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts" / "mistakes.txt"
PAGE = ROOT / "docs" / "parity.md"
WORK = ROOT / "build" / "mistakes"
TREE = WORK / "tree"
BUILD = TREE / "build" / "release"
RESULTS = WORK / "results.tsv"
JOBS = os.environ.get("PHX_JOBS", str(os.cpu_count()))
LAYOUTS = "verify_test ParityMatrix.EveryLayoutComputesWhatOneRankComputes"
SECONDS = 300  # for one test


class Mistake:
    def __init__(self, paragraph):
        lines = paragraph.rstrip("\n").split("\n")
        head = lines[0].removeprefix("==").split()
        self.name, self.quick = head[0], "quick" in head[1:]
        self.what = lines[1]
        self.file = lines[2].removeprefix("file ").strip()
        words = shlex.split(lines[3].removeprefix("test "))
        if words[0] == "layouts":
            words = LAYOUTS.split() + ["PHX_LAYOUT=" + words[1]]
        self.program, self.test = words[0], words[1]
        self.variables = dict(word.split("=", 1) for word in words[2:])
        self.changes = []  # (old lines, new lines)
        for line in lines[4:]:
            sign, text = line[0], line[1:].strip()
            if sign == "-":
                if not self.changes or self.changes[-1][1]:
                    self.changes.append(([], []))
                self.changes[-1][0].append(text)
            elif sign == "+":
                self.changes[-1][1].append(text)
            else:
                sys.exit(f"{TABLE}: {self.name}: a line should begin with - or +: {line}")
        self.key = hashlib.sha256(paragraph.encode()).hexdigest()[:16]

    def apply(self, source):
        lines = source.split("\n")
        for old, new in self.changes:
            stripped = [line.strip() for line in lines]
            places = [i for i in range(len(lines)) if stripped[i : i + len(old)] == old]
            if len(places) != 1:
                raise LookupError(f"{self.file} has {len(places)} places like: {old[0]}")
            at = places[0]
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines[at : at + len(old)] = [indent + line for line in new]
        return "\n".join(lines)


def read_table():
    text = "\n".join(line for line in TABLE.read_text().split("\n") if not line.startswith("#"))
    mistakes = [Mistake(paragraph.strip()) for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    names = [mistake.name for mistake in mistakes]
    for name in set(names):
        if names.count(name) > 1:
            sys.exit(f"{TABLE}: {name} is there twice")
    return mistakes


def git(*words, at=ROOT):
    return subprocess.run(["git", "-C", at, *words], check=True, capture_output=True, text=True).stdout.strip()


# The work tree at the last commit, with the build folder of an earlier run. What a killed run left in it goes.
# Returns what names these sources in the file of results.
def check_out():
    commit = git("rev-parse", "HEAD")
    if not (TREE / ".git").exists():
        git("worktree", "prune")
        git("worktree", "add", "--detach", "--force", str(TREE), commit)
    git("checkout", "--quiet", "--detach", "--force", commit, at=TREE)
    # The tests read the files of the original, so that their objects are the ones that ccache has.
    files = os.environ.get("PHX_TEST_FILES", ROOT)
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "cwd": TREE}
    subprocess.run(["cmake", "--preset", "release", "-DPHX_BENCHMARKS=OFF", f"-DPHX_TEST_FILES={files}"], **quiet)
    # What results depend on: pages may change in between.
    parts = git("rev-parse", *(f"HEAD:{part}" for part in ("src", "tests", "cmake", "CMakeLists.txt")))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def build(targets):
    done = subprocess.run(
        ["cmake", "--build", BUILD, "-j", JOBS, "--target", *targets],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode == 0, done.stdout


# "passed", "failed", or how else it ended; with the output.
def run(mistake):
    command = [BUILD / mistake.program, f"--gtest_filter={mistake.test}", "--gtest_brief=1", "--gtest_color=no"]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            cwd=BUILD,
            env={**os.environ, **mistake.variables},
        )
    except subprocess.TimeoutExpired as late:
        return f"not over after {SECONDS} s", (late.stdout or b"").decode(errors="replace")
    if not re.search(r"^\[=+\] 1 test from 1 test suite ran\.", done.stdout, re.M):
        return f"crashed or is no test (exit code {done.returncode})", done.stdout
    if done.returncode == 0:
        return "passed", done.stdout
    return "failed", done.stdout


# The first line of a failure that says something.
def reason(output):
    lines = [line.strip() for line in output.split("\n")]
    for i, line in enumerate(lines):
        if line.endswith("Failure") and i + 1 < len(lines):
            return " ".join(" ".join(lines[i + 1 : i + 4]).split())[:150]
    return lines[0][:150]


def try_mistake(mistake):
    path = TREE / mistake.file
    source = path.read_text()
    try:
        changed = mistake.apply(source)
    except LookupError as error:
        return "not found", str(error)
    try:
        path.write_text(changed)
        good, output = build([mistake.program])
        if not good:
            errors = [line for line in output.split("\n") if "error" in line]
            return "does not compile", (errors or [output[-200:]])[0]
        outcome, output = run(mistake)
    finally:
        path.write_text(source)
    if outcome == "failed":
        return "caught", reason(output)
    return ("survived" if outcome == "passed" else outcome), reason(output)


def read_results(sources):
    if not RESULTS.exists():
        return {}
    rows = [line.split("\t") for line in RESULTS.read_text().splitlines()]
    return {row[1]: row for row in rows if len(row) == 5 and row[0] == sources}


def run_all(mistakes, again):
    WORK.mkdir(parents=True, exist_ok=True)
    lock = open(WORK / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run is at work in {WORK}")
    started = time.time()
    sources = check_out()
    print(f"commit {git('rev-parse', '--short', 'HEAD')}, in {TREE.relative_to(ROOT)}", flush=True)
    results = {} if again else read_results(sources)
    caught_before = {key for key, row in results.items() if row[3] == "caught"}
    waiting = [mistake for mistake in mistakes if mistake.key not in caught_before]

    good, output = build(sorted({mistake.program for mistake in waiting})) if waiting else (True, "")
    if not good:
        sys.exit(output[-3000:] + "\nthe sources do not build without a mistake")
    print(f"built after {time.time() - started:.0f} s", flush=True)
    broken = {}  # tests that fail without any mistake
    tests = {(mistake.program, mistake.test, *mistake.variables.values()): mistake for mistake in waiting}
    for test, mistake in tests.items():
        outcome, output = run(mistake)
        if outcome != "passed":
            broken[test] = reason(output)
            print(f"{mistake.program} {mistake.test}: {outcome} without any mistake\n{output[-1000:]}", flush=True)
    passing = len(tests) - len(broken)
    print(f"{passing} of {len(tests)} tests pass without a mistake, after {time.time() - started:.0f} s", flush=True)

    for number, mistake in enumerate(waiting, 1):
        begun = time.time()
        test = (mistake.program, mistake.test, *mistake.variables.values())
        outcome, why = ("fails anyway", broken[test]) if test in broken else try_mistake(mistake)
        results[mistake.key] = [sources, mistake.key, mistake.name, outcome, " ".join(why.split())]
        with open(RESULTS, "a") as file:
            file.write("\t".join(results[mistake.key]) + "\n")
        took = time.time() - begun
        print(f"[{number}/{len(waiting)}] {outcome}: {mistake.name} ({took:.0f} s)\n    {why}", flush=True)

    rows = [(results[m.key][3], m.name, f"{m.program} {m.test}") for m in mistakes]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    print()
    for outcome, name, test in rows:
        print(f"{outcome:{widths[0]}}  {name:{widths[1]}}  {test}")
    caught = sum(row[0] == "caught" for row in rows)
    print(f"\n{caught} of {len(rows)} mistakes are caught, {time.time() - started:.0f} s")
    return 0 if caught == len(rows) else 1


# Names the mistakes whose lines are no longer there: whoever changed the code writes them anew.
def check_places(mistakes):
    lost = []
    for mistake in mistakes:
        try:
            mistake.apply((ROOT / mistake.file).read_text())
        except (LookupError, OSError) as error:
            lost.append(f"{mistake.name}: {error}")
    if lost:
        sys.exit("\n".join([f"{TABLE} names code that is no longer there:", *lost]))


# The tests of a program, those with parameters by their full names.
def tests_of(program):
    output = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    names, suite = set(), ""
    for line in output.split("\n"):
        words = line.split("#")[0].strip()  # behind it a parameter's value
        if not words:
            continue
        if line.startswith(" "):
            names.add(suite + words)
        elif words.endswith("."):
            suite = words
    return names


# Names the tests that do not exist, of the programs that are built.
def check_tests(mistakes):
    programs = {mistake.program: ROOT / "build" / "release" / mistake.program for mistake in mistakes}
    known = {name: tests_of(path) for name, path in programs.items() if path.exists()}
    lost = [
        f"{mistake.name}: {mistake.program} has no test {mistake.test}"
        for mistake in mistakes
        if mistake.program in known and mistake.test not in known[mistake.program]
    ]
    if lost:
        sys.exit("\n".join([f"{TABLE} names tests that build/release does not have:", *lost]))
    print(f"all named tests exist; {len(known)} of {len(programs)} programs are built and were asked", flush=True)


def shown_test(mistake):
    layout = "".join(f", {value}" for value in mistake.variables.values())
    return f"`{mistake.test}`{layout}".replace("|", "\\|")


# The table between the two markers of the page.
def page_table(mistakes):
    rows = "".join(f"| {m.what} | `{m.file.removeprefix('src/')}` | {shown_test(m)} |\n" for m in mistakes)
    return "| mistake | in | test that fails |\n|---|---|---|\n" + rows


def write_page(mistakes, check):
    page = PAGE.read_text()
    begin, end = "<!-- mistakes: scripts/mistakes.sh --page -->\n", "<!-- end of mistakes -->\n"
    if begin not in page or end not in page:
        sys.exit(f"{PAGE} has no place for the table: {begin.strip()} ... {end.strip()}")
    head, rest = page.split(begin)
    old, tail = rest.split(end)
    new = page_table(mistakes)
    if check and old != new:
        sys.exit(f"{PAGE} does not have the table of {TABLE}: scripts/mistakes.sh --page writes it")
    if old != new:
        PAGE.write_text(head + begin + new + end + tail)
    return 0


def main():
    parser = argparse.ArgumentParser(prog="scripts/mistakes.sh")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--quick", action="store_true", help="those marked quick, and whether page, places and tests are there")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--page", action="store_true", help="write the table of docs/parity.md")
    options = parser.parse_args()
    mistakes = read_table()
    if options.list:
        for mistake in mistakes:
            print(f"{mistake.name:45} {mistake.program} {mistake.test}")
        return 0
    if options.page:
        return write_page(mistakes, check=False)
    if options.quick:
        write_page(mistakes, check=True)
        check_places(mistakes)
        check_tests(mistakes)
        mistakes = [mistake for mistake in mistakes if mistake.quick]
    for name in options.only:
        if name not in [mistake.name for mistake in mistakes]:
            sys.exit(f"there is no mistake {name}")
    if options.only:
        mistakes = [mistake for mistake in mistakes if mistake.name in options.only]
    return run_all(mistakes, again=bool(options.only))


if __name__ == "__main__":
    sys.exit(main())
