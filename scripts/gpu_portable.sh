#!/usr/bin/env bash
# The portable build (PHX_CUDA_ARCHS=portable: PTX of compute capability 8.0, which the driver compiles for the GPU at hand):
# builds it, runs every GPU test with it, and prints its rates beside those of the build for this GPU (build/cuda).
#   scripts/gpu_portable.sh OUT_FOLDER [test|bench]
# BUILD=build/cuda turns that folder into the portable build, which compiles the .cu files only; it stays portable until
# `cmake --preset cuda -DPHX_CUDA_ARCHS=90a`.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu_portable.sh OUT_FOLDER [test|bench]} what=${2:-all}
build=${BUILD:-build/portable}
cases=(gpt2s llama1b llama8b_8L)
mkdir -p "$out"

rates() {  # folder, name of the results
  for name in "${cases[@]}"; do
    "$1/bench_gpu_train" "$name" --steps 10 --gemm-table none | tail -1 >"$out/$2_$name.json"
  done
}
[ "$what" = test ] || [ ! -x build/cuda/bench_gpu_train ] || rates build/cuda native

cmake --preset cuda -B "$build" -DPHX_CUDA_ARCHS=portable >"$out/portable_configure.txt" || { tail -20 "$out/portable_configure.txt"; exit 1; }
targets=(bench_gpu_train)
rooms=()
if [ "$what" != bench ]; then
  for room in tests/*/; do
    room=$(basename "$room")
    grep -rlqE 'TEST.*Cuda' "tests/$room" 2>/dev/null && rooms+=("$room")
  done
fi
cmake --build "$build" -j "${PHX_JOBS:-$(nproc)}" --target "${targets[@]}" ${rooms[@]+"${rooms[@]/%/_test}"} >"$out/portable_build.txt" \
  || { tail -20 "$out/portable_build.txt"; exit 1; }
# No machine code of ours: what runs was compiled by the driver. (CUDA's own runtime, linked in, has none either.)
if command -v cuobjdump >/dev/null && cuobjdump --list-elf "$build/bench_gpu_train" 2>/dev/null | grep -q "\.cubin"; then
  echo "gpu_portable: $build/bench_gpu_train has machine code in it" >&2
  exit 1
fi
# The driver keeps what it compiled; in a folder of our own the first test pays for it.
export CUDA_CACHE_PATH="$PWD/$build/jit" CUDA_CACHE_MAXSIZE=4294967296
failed=0
for room in ${rooms[@]+"${rooms[@]}"}; do
  start=$SECONDS
  "$build/${room}_test" --gtest_brief=1 --gtest_filter='*Cuda*' >"$out/portable_$room.txt" 2>&1 || failed=1
  echo "$room: $(grep -E "PASSED|FAILED" "$out/portable_$room.txt" | head -3 | tr '\n' ' ') ($((SECONDS - start)) s)"
done
if [ "$what" != test ]; then
  rates "$build" portable
  python3 - "$out" "${cases[@]}" <<'PY'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
print("| case | build for this GPU | portable | time, portable to it |\n|---|---|---|---|")
for name in sys.argv[2:]:
    rows = {}
    for kind in ("native", "portable"):
        file = out / f"{kind}_{name}.json"
        rows[kind] = json.loads(file.read_text()) if file.exists() else None
    text = {kind: f"{row['ms']:.1f} ms, {row['tokens_per_s']:,.0f} tok/s" if row else "-" for kind, row in rows.items()}
    ratio = f"{rows['portable']['ms'] / rows['native']['ms']:.3f}" if rows["native"] else "-"
    print(f"| {name} | {text['native']} | {text['portable']} | {ratio} |")
PY
fi
exit $failed
