#!/usr/bin/env bash
# Fails if clang-format would change a file, and lists those files: scripts/check_format.sh [ROOT].
# scripts/check_format.sh --fix [ROOT] formats them instead. Other versions than 14 format differently.
set -euo pipefail
fix=false
if [ "${1:-}" = --fix ]; then
  fix=true
  shift
fi
cd "${1:-$(dirname "$0")/..}"
formatter=$(command -v clang-format-14 || true)
if [ -z "$formatter" ]; then
  echo "check_format: clang-format-14 is missing: scripts/setup.sh --gates installs it" >&2
  exit 2
fi
folders=()
for folder in src tests benchmarks fuzz examples; do
  [ -d "$folder" ] && folders+=("$folder")
done
mapfile -d '' files < <(find "${folders[@]}" -type f -regex '.*\.\(h\|cpp\|cu\|cuh\)' -print0 | sort -z)
if [ ${#files[@]} -eq 0 ]; then
  echo "check_format: no sources in $PWD" >&2
  exit 2
fi
if $fix; then
  printf '%s\0' "${files[@]}" | xargs -0 -n 50 -P "$(nproc)" "$formatter" -i
  exit
fi
bad=$(printf '%s\0' "${files[@]}" | xargs -0 -n 50 -P "$(nproc)" "$formatter" --dry-run 2>&1 |
      sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: .*Wclang-format-violations.*/\1/p' | sort -u)
if [ -n "$bad" ]; then
  echo "check_format: clang-format would change these files; scripts/check_format.sh --fix does it:" >&2
  echo "$bad" >&2
  exit 1
fi
echo "check_format: ${#files[@]} files are formatted"
