#!/usr/bin/env bash
# What takes too long for every commit: every layout of the parity, training and resume matrices, all rooms under the address
# and undefined-behaviour sanitizers, rooms with threads under the thread sanitizer, the planted mistakes, and runs whose ranks are
# killed over and over.
#   scripts/nightly.sh [PART...]     PARTS: layouts asan tsan mistakes kills; all of them without arguments
# Every part runs, even if one before it fails. The last lines say which failed; logs are in build/nightly/.
set -uo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(layouts asan tsan mistakes kills); fi
logs=$PWD/build/nightly
mkdir -p "$logs"

layouts() {
  scripts/build.sh release verify_test &&
    PHX_ALL_LAYOUTS=1 build/release/verify_test --gtest_filter='*Matrix*:*Resume*:*Masked*'
}
rooms() { for folder in src/*/; do basename "$folder"; done; }
with_tests() { while read -r room; do [ -d "tests/$room" ] && echo "$room"; done; }
asan() { scripts/sanitize.sh asan $(rooms | with_tests); }
# The rooms in which threads meet; verify runs layouts as threads of one process.
tsan() { scripts/sanitize.sh tsan base core comm ops nn parallel optim checkpoint data train verify; }
mistakes() { scripts/mistakes.sh; }
kills() {
  scripts/build.sh release cli_test phalanx &&
    PHX_KILLS=40 build/release/cli_test --gtest_filter='*KilledRanks*' && scripts/crash_suite.sh 200
}

failed=()
for part in "${parts[@]}"; do
  case $part in
    layouts | asan | tsan | mistakes | kills) ;;
    *)
      echo "nightly: there is no part '$part'; the parts are layouts asan tsan mistakes kills" >&2
      exit 2
      ;;
  esac
  started=$SECONDS
  echo "nightly: $part, log in build/nightly/$part.log"
  if "$part" >"$logs/$part.log" 2>&1; then
    echo "nightly: $part passed in $((SECONDS - started)) s"
  else
    failed+=("$part")
    echo "nightly: $part FAILED after $((SECONDS - started)) s; the end of its log:"
    tail -n 15 "$logs/$part.log"
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "nightly: failed: ${failed[*]}"
  exit 1
fi
echo "nightly: all of ${parts[*]} passed"
