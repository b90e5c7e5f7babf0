#!/usr/bin/env bash
# Unit tests under sanitizers: scripts/sanitize.sh [asan|tsan] [ROOM...]. asan is the address and the undefined-behaviour
# sanitizer, tsan the thread sanitizer. Without rooms: those that are compiled and tested in a few minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-asan}
shift || true
rooms=("$@")
if [ ${#rooms[@]} -eq 0 ]; then rooms=(base core text report); fi
scripts/build.sh "$preset" "${rooms[@]/%/_test}"
# A bus error is left to the program: it has a handler of its own for files that shrink, and tests of who is killed by what.
export ASAN_OPTIONS=handle_sigbus=0 TSAN_OPTIONS=handle_sigbus=0
for room in "${rooms[@]}"; do
  # Each program as a whole: a sanitizer's start-up costs more than most tests.
  "build/$preset/${room}_test" --gtest_brief=1
done
