#!/usr/bin/env bash
# compute-sanitizer over the GPU tests: memcheck of kernels, ops and training, racecheck of kernels and ops.
# racecheck reports hazards within split-K kernels of cuBLAS (nvjet...), which are theirs: they are counted, and
# any other is a failure. cuDNN's kernels are left out of the attention tests for the same reason.
#   scripts/gpu_sanitize.sh [OUT_FOLDER]     after scripts/build.sh cuda
set -uo pipefail
cd "$(dirname "$0")/../build/cuda"
out=${1:-$(mktemp -d)}
mkdir -p "$out"
rm -f "$out"/{memcheck,racecheck}_*.txt
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
check() {  # name, test program, filter, flags of the sanitizer
  local name=$1 program=$2 filter=$3
  shift 3
  "$sanitizer" "$@" "./$program" --gtest_brief=1 --gtest_filter="$filter" >"$out/$name.txt" 2>&1
}
check memcheck_kernels kernels_test '*Cuda*' --tool memcheck &
check memcheck_ops ops_test '*Cuda*' --tool memcheck &
check memcheck_train train_test '*Cuda*' --tool memcheck &
check racecheck_kernels kernels_test '*Cuda*' --tool racecheck &
check racecheck_ops ops_test '*Cuda*-Attention.*' --tool racecheck &
without_cudnn=(--tool racecheck --kernel-name-exclude kernel_substring=cudnn)
check racecheck_attention ops_test 'Attention.*Cuda*-*AtOddSizes*' "${without_cudnn[@]}" &
for head in 64 96 128 192 256; do  # the longest, so each by itself
  check "racecheck_attention_$head" ops_test "Attention.CudaMatchesCpuAtOddSizesF32Head$head" "${without_cudnn[@]}" &
done
wait
failed=0
for log in "$out"/*.txt; do
  theirs=$(grep -c "and Write access at nvjet" "$log")
  ours=$(grep "hazards\]" "$log" | grep -vc nvjet)
  grep -qE "ERROR SUMMARY: 0 errors|RACECHECK SUMMARY" "$log" && grep -qE "PASSED.* [1-9][0-9]* test" "$log" && ! grep -q "FAILED" "$log" && [ "$ours" = 0 ] || failed=1
  echo "$(basename "$log" .txt): $(grep -E "PASSED|FAILED" "$log" | head -1), $(tail -1 "$log" | sed 's/=* //'); hazards in cuBLAS's kernels $theirs, in others $ours"
done
exit $failed
