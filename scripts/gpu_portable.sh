#!/usr/bin/env bash
# The portable build (PHX_CUDA_ARCHS=portable: PTX of compute capability 8.0, which the driver compiles for the GPU at hand):
# builds it, runs every GPU test with it, and prints its rates beside those of the build for this GPU (build/cuda).
#   scripts/gpu_portable.sh OUT_FOLDER [test|bench]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu_portable.sh OUT_FOLDER [test|bench]} what=${2:-all}
mkdir -p "$out"
build=build/portable
cmake --preset cuda -B $build -DPHX_CUDA_ARCHS=portable >"$out/portable_configure.txt" || { tail -20 "$out/portable_configure.txt"; exit 1; }
targets=(phalanx bench_gpu_train bench_gpu_attention)
rooms=()
if [ "$what" != bench ]; then
  for room in tests/*/; do
    room=$(basename "$room")
    grep -rlqE 'TEST.*Cuda' "tests/$room" 2>/dev/null && rooms+=("$room")
  done
fi
cmake --build $build -j "${PHX_JOBS:-$(nproc)}" --target "${targets[@]}" ${rooms[@]+"${rooms[@]/%/_test}"} >"$out/portable_build.txt" \
  || { tail -20 "$out/portable_build.txt"; exit 1; }
# No machine code: what runs was compiled by the driver.
if command -v cuobjdump >/dev/null && cuobjdump --list-elf $build/phalanx 2>/dev/null | grep -q "\.cubin"; then
  echo "gpu_portable: $build/phalanx has machine code in it" >&2
  exit 1
fi
# The driver keeps what it compiled; a folder of our own makes the first test pay for it, and the table show it.
export CUDA_CACHE_PATH="$PWD/$build/jit" CUDA_CACHE_MAXSIZE=4294967296
failed=0
for room in ${rooms[@]+"${rooms[@]}"}; do
  start=$SECONDS
  "$build/${room}_test" --gtest_brief=1 --gtest_filter='*Cuda*' >"$out/portable_$room.txt" 2>&1 || failed=1
  echo "$room: $(grep -E "PASSED|FAILED" "$out/portable_$room.txt" | head -2 | tr '\n' ' ') ($((SECONDS - start)) s)"
done
if [ "$what" != test ]; then
  echo "| case | build for this GPU | portable | ratio |"
  echo "|---|---|---|---|"
  for name in gpt2s llama1b llama8b_8L; do
    for kind in cuda portable; do
      [ -x build/$kind/bench_gpu_train ] || continue
      build/$kind/bench_gpu_train $name --steps 10 --gemm-table none | tail -1 >"$out/${kind}_$name.json"
    done
    python3 - "$out" $name <<'PY'
import json, pathlib, sys
out, name = pathlib.Path(sys.argv[1]), sys.argv[2]
ms = {}
for kind in ("cuda", "portable"):
    file = out / f"{kind}_{name}.json"
    if file.exists():
        row = json.loads(file.read_text())
        ms[kind] = (row["ms"], f"{row['ms']:.1f} ms, {row['tokens_per_s']:,.0f} tok/s")
native = ms.get("cuda")
print(f"| {name} | {native[1] if native else '-'} | {ms['portable'][1]} | {ms['portable'][0] / native[0]:.3f} |" if native
      else f"| {name} | - | {ms['portable'][1]} | - |")
PY
  done
fi
exit $failed
