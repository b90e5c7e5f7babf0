#!/usr/bin/env bash
# On a machine with an NVIDIA GPU (Hopper): builds the cuda preset, runs all tests including the GPU's, then
# the GPU benchmarks. scripts/gpu.sh [test|bench]
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
command -v nvidia-smi >/dev/null || { echo "gpu: no nvidia-smi: is there an NVIDIA driver?" >&2; exit 1; }
# PHX_SETUP=0 where nothing can be installed and everything is there.
[ "${PHX_SETUP:-1}" = 0 ] || scripts/setup.sh
nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader
scripts/build.sh cuda
if [ "$what" != bench ]; then
  # One process a room, not one a test: a CUDA context costs a second.
  failed=0
  for test in build/cuda/*_test; do
    echo "== $(basename "$test")"
    "$test" --gtest_brief=1 || failed=1
  done
  [ "$failed" = 0 ]
fi
if [ "$what" != test ]; then
  for bench in build/cuda/bench_gpu_*; do
    [ -x "$bench" ] && { echo "== $(basename "$bench")"; "$bench"; }
  done
fi
nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader
