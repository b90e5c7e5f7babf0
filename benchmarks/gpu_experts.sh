#!/usr/bin/env bash
# The experts' kernels on one GPU: their tests, bench_gpu_experts and PyTorch's grouped product, one after the other.
#   benchmarks/gpu_experts.sh OUT_FOLDER
# Needs the targets ops_test and bench_gpu_experts of the cuda preset, and PyTorch.
# Each part has a time limit: a kernel that hangs ends only its part.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: benchmarks/gpu_experts.sh OUT_FOLDER}
mkdir -p "$out"
build=build/cuda
part() {  # NAME SECONDS COMMAND...
  local name=$1 seconds=$2
  shift 2
  echo "== $name"
  timeout "$seconds" "$@" >"$out/$name.txt" 2>&1
  local status=$?
  [ $status -eq 0 ] || echo "$name: exit status $status (124: it hung)"
}
part tests 120 $build/ops_test --gtest_filter='Router.*:ExpertRows.*-*Hopper*'
tail -25 "$out/tests.txt"
part tests_hopper 60 $build/ops_test --gtest_filter='ExpertRows.*Hopper*-*Clusters*'
tail -40 "$out/tests_hopper.txt"
part tests_clusters 60 $build/ops_test --gtest_filter='ExpertRows.*Clusters*'
tail -25 "$out/tests_clusters.txt"
part bench 90 $build/bench_gpu_experts
cat "$out/bench.txt"
part peer 120 python3 benchmarks/gpu_experts_peer.py
cat "$out/peer.txt"
part walks 90 $build/bench_gpu_experts walks
cat "$out/walks.txt"
