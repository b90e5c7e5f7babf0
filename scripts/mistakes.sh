#!/usr/bin/env bash
# Shows that the tests can fail: applies deliberate mistakes to the sources one by one and demands that the test
# named beside each one fails. The mistakes stand in scripts/mistakes.txt, the work is done by scripts/mistakes.py.
#
#   scripts/mistakes.sh                 all of them; those that this commit has behind it are not run again
#   scripts/mistakes.sh --quick         the few that continuous integration runs; and whether the table is up to date: the page
#                                       has it, every place is there, and so is every test of the programs in build/release
#   scripts/mistakes.sh --only NAME...  these, whether or not they were run before
#   scripts/mistakes.sh --list          names and tests
#   scripts/mistakes.sh --page          writes the table of docs/parity.md
#
# The sources are those of the last commit, in a work tree of its own under build/mistakes: yours is not touched.
exec python3 "$(dirname "$0")/mistakes.py" "$@"
