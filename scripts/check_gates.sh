#!/usr/bin/env bash
# Shows that the gates close: plants one violation after the other in a copy of the tree, and fails if a gate lets it
# pass or does not name it. (The sanitizers' own planted mistakes are in tests/base/sanitizers_test.cpp.)
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/tree/tests"
for part in src cmake benchmarks fuzz examples .clang-format; do
  [ -e "$part" ] && cp -r "$part" "$copy/tree/"
done
find tests -mindepth 1 -maxdepth 1 ! -name data -exec cp -r {} "$copy/tree/tests/" \;
cd "$copy/tree"

planted=0
# gate_stops WORDS COMMAND...: the command fails and says WORDS.
gate_stops() {
  local words=$1 said
  shift
  planted=$((planted + 1))
  if said=$("$@" 2>&1); then
    echo "check_gates: '$*' passes although there is a violation that it should call: $words" >&2
    exit 1
  fi
  if ! grep -qF -- "$words" <<<"$said"; then
    printf "check_gates: '%s' does not say: %s\nIt says:\n%s\n" "$*" "$words" "$said" >&2
    exit 1
  fi
}
includes() { "$repository/scripts/check_includes.py" --root "$PWD" "$@"; }
format() { "$repository/scripts/check_format.sh" "$PWD"; }
# with FILE TEXT WORDS COMMAND...: the gate stops while FILE has TEXT as its last line.
with() {
  local file=$1 text=$2 kept="$copy/kept" existed=false
  [ -e "$file" ] && existed=true && cp "$file" "$kept"
  printf '%b\n' "$text" >>"$file"
  shift 2
  gate_stops "$@"
  if $existed; then cp "$kept" "$file"; else rm "$file"; fi
}

includes --quick >/dev/null  # nothing is wrong before
format >/dev/null

with src/base/planted.cpp 'int  x;' src/base/planted.cpp format
with src/kernels/cuda/planted.cuh 'int  x;' src/kernels/cuda/planted.cuh format
with src/base/planted.h '#include "phalanx/core/tensor.h"' 'base may include no other room, but not core' includes --quick
with tests/core/planted_test.cpp '#include "phalanx/comm/world.h"' 'core may include base, but not comm' includes --quick
with tests/text/planted_test.cpp '#include "train/tiny_run.h"' 'tests of text may not include helpers of train' includes --quick
with src/core/planted.h '#include "core/tensor.h"' 'headers are included as "phalanx/core/tensor.h"' includes --quick
with src/core/planted.cpp '#include "tensor.h"' 'headers are included as "phalanx/core/tensor.h"' includes --quick
with src/core/planted.cpp '#include <phalanx/core/tensor.h>' 'included with quotes' includes --quick
with src/core/planted.cpp '#include "phalanx/core/gone.h"' 'src/core/gone.h does not exist' includes --quick
with src/core/planted.cpp '#include <cuda_runtime.h>' 'from cuda/ folders only' includes --quick
with src/core/planted.cpp '#include "phalanx/kernels/cuda/attention_own.h"' 'from cuda/ folders only' includes --quick
with src/base/option.h '#include "phalanx/base/options.h"' 'headers include each other: ' includes --quick
mkdir src/attic
with src/attic/planted.cpp '' 'src/attic is not in cmake/Rooms.cmake' includes --quick
rmdir src/attic
with cmake/Rooms.cmake 'phx_room(base DEPENDS cli)' 'a cycle: base -> cli' includes --quick
with src/base/planted.h '#pragma once\nstd::string planted();' 'planted.h does not compile on its own' includes src/base/planted.h

mv src/text/README.md "$copy/kept"
gate_stops 'src/text has no README.md' includes --quick
mv "$copy/kept" src/text/README.md

cp -r "$repository/scripts" "$repository/docs" .

# The gate of the library: a header that is public is not installed. This build installs every header, and nothing else.
mkdir -p build/headers_only
cat >build/headers_only/cmake_install.cmake <<END
file(INSTALL "$PWD/src/" DESTINATION "\${CMAKE_INSTALL_PREFIX}/include/phalanx" FILES_MATCHING PATTERN "*.h")
END
with docs/library.md '| plant | `phalanx/base/planted.h` |' \
  'docs/library.md lists phalanx/base/planted.h, which is not installed' scripts/check_library.sh build/headers_only

# The gate of deliberate mistakes: the page lacks one of them; its table names a test that is gone, or code that was rewritten.
mistakes() { scripts/mistakes.sh --quick; }
with scripts/mistakes.txt '\n== planted\nx\nfile src/base/planted.cpp\ntest base_test Planted.Test\n- x\n+ y' \
  'parity.md does not have the table of' mistakes
# A program that lists its tests as a test program does, all but one.
mkdir -p build/release
cat >build/release/parallel_test <<'END'
#!/usr/bin/env bash
scripts/mistakes.sh --list | grep " parallel_test " | grep -v TiedEmbedding |
  sed -E 's/.* (.*)\.(.*)/\1.\n  \2  # GetParam() = 2/'
END
chmod +x build/release/parallel_test
gate_stops 'parallel_test has no test Ownership.ATiedEmbeddingIsSummedOverItsTwoStages' mistakes
rm build/release/parallel_test
sed -i 's/ownership.speaks && first;/first \&\& ownership.speaks;/' src/parallel/ownership.cpp
gate_stops 'names code that is no longer there' mistakes

# Three mistakes in a program of its own, which is built in a second: one is caught, one changes nothing that the test
# looks at, one does not compile. Only the first counts.
mkdir -p "$copy/small/src" "$copy/small/tests" "$copy/small/cmake" "$copy/small/scripts"
cd "$copy/small"
cp "$repository/scripts/mistakes.py" "$repository/scripts/mistakes.sh" scripts/
touch tests/none cmake/none
cat >src/small.c <<'END'
#include <stdio.h>
int main(void) {
  const int two = 2;
  const int unused = 3;
  puts("[==========] 1 test from 1 test suite ran.");
  return (void)unused, two != 2;
}
END
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(small C)
add_executable(small_test src/small.c)
END
cat >CMakePresets.json <<'END'
{"version": 6, "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}
END
mistake() { printf '== %s\nx\nfile src/small.c\ntest small_test Small.Test\n- %s\n+ %s\n\n' "$@"; }
{
  mistake another-two 'const int two = 2;' 'const int two = 4;'
  mistake harmless 'const int unused = 3;' 'const int unused = 4;'
  mistake unreadable 'const int unused = 3;' 'const int unused = ;'
} >scripts/mistakes.txt
git init -q . && git add . && git -c commit.gpgsign=false -c user.name=planted -c user.email=planted@planted commit -q -m planted
ended=0
scripts/mistakes.sh >"$copy/small.log" 2>&1 || ended=$?
what_it_said() { cat "$copy/small.log" && return "$ended"; }
for words in 'caught: another-two' 'survived: harmless' 'does not compile: unreadable' '1 of 3 mistakes are caught'; do
  gate_stops "$words" what_it_said
done
echo "check_gates: $planted planted violations were stopped"
