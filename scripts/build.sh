#!/usr/bin/env bash
# Builds a preset, or some of its targets: scripts/build.sh [release|debug|asan|tsan|cuda] [target...]. The
# program is build/<preset>/phalanx.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
cmake --preset "$preset" >/dev/null || { cmake --preset "$preset"; exit 1; }
cmake --build "build/$preset" -j "${PHX_JOBS:-$(nproc)}" ${@:+--target "$@"}
