#!/usr/bin/env bash
# compute-sanitizer over the GPU tests of kernels and ops: memcheck, then racecheck of our own kernels (those
# of cuBLAS and cuDNN are left out: racecheck reports hazards within their split-K and attention kernels).
#   scripts/gpu_sanitize.sh [OUT_FOLDER]     after scripts/build.sh cuda
set -uo pipefail
cd "$(dirname "$0")/../build/cuda"
out=${1:-$(mktemp -d)}
mkdir -p "$out"
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
theirs=(--kernel-name-exclude kernel_substring=nvjet --kernel-name-exclude kernel_substring=cudnn
  --kernel-name-exclude kernel_substring=cutlass --kernel-name-exclude kernel_substring=cublas)
check() {  # name, tool and its flags --, test program, filter
  local name=$1 filter=$2 program=$3
  shift 3
  "$sanitizer" "$@" --error-exitcode 9 "./$program" --gtest_brief=1 --gtest_filter="$filter" >"$out/$name.txt" 2>&1 || echo "$name" >>"$out/failed"
}
rm -f "$out/failed"
check memcheck_kernels '*Cuda*' kernels_test --tool memcheck &
check memcheck_ops '*Cuda*' ops_test --tool memcheck &
check memcheck_train '*Cuda*' train_test --tool memcheck &
check racecheck_kernels '*Cuda*' kernels_test --tool racecheck "${theirs[@]}" &
check racecheck_ops '*Cuda*-Attention.*' ops_test --tool racecheck "${theirs[@]}" &
check racecheck_attention 'Attention.Cuda*-*AtOddSizes' ops_test --tool racecheck "${theirs[@]}" &
wait
for log in "$out"/*.txt; do echo "$(basename "$log" .txt): $(grep -E "PASSED|FAILED" "$log" | head -1) $(tail -1 "$log")"; done
[ ! -e "$out/failed" ]
