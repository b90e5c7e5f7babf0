// Hopper's own instructions (sm_90a): barriers that count bytes, copies of boxes of a tensor into
// shared memory, and products of a warpgroup (four warps, 128 threads).
//
// Operands lie in shared memory as boxes of 128-byte rows with 128-byte swizzle, aligned to 1024
// bytes, as a tensor map with CU_TENSOR_MAP_SWIZZLE_128B leaves them. A row holds 64 numbers
//   along k           (Major::k): row i is row (column) i of the operand
//   along rows        (Major::mn): row i is k = i; the next 64 rows of the operand are the next box
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "phalanx/core/small_float.h"

namespace phx::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return uint32_t(__cvta_generic_to_shared(at));
}

// --- barriers: a phase is over when all arrivals and all expected bytes are there.

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
// After the last init and before the copies: makes the barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Until the phase of this parity is over; parity 1 of a new barrier is.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  const uint32_t at = shared_address(barrier);
  uint32_t done = 0;
  do {
    asm volatile(
        "{\n.reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n}\n"
        : "=r"(done)
        : "r"(at), "r"(parity)
        : "memory");
  } while (done == 0);
}

// --- clusters: blocks that run side by side and reach each other's shared memory.

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();  // one lane may have worked alone
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// At the same barrier of the cluster's block `rank`, which may be this one.
__device__ __forceinline__ void barrier_arrive_at(uint64_t* barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// What threads wrote into shared memory by ordinary stores, the engines read after this and a
// barrier of the threads.
__device__ __forceinline__ void fence_for_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Among `threads` threads; barrier 0 is __syncthreads'.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- copies: the box at coordinates x (the innermost), y, z

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap* map, uint64_t* barrier, int x,
                                         int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap* map, uint64_t* barrier, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// The same into the shared memory of all blocks whose bit is set, at the same place in each; the
// barrier at the same place counts the bytes there.
__device__ __forceinline__ void copy_box_to(uint16_t blocks, void* to, const CUtensorMap* map,
                                            uint64_t* barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void copy_box_to(uint16_t blocks, void* to, const CUtensorMap* map,
                                            uint64_t* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

// Device memory that is read soon, into L2: 16-byte aligned, a multiple of 16 bytes.
__device__ __forceinline__ void prefetch_bytes(const void* at, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(at)),
               "r"(bytes)
               : "memory");
}

// --- registers: the warps of a warpgroup give some back, or take more.

template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- products

enum class Major : int { k = 0, mn = 1 };

inline constexpr int kBoxRow = 128;  // bytes

// Where an operand begins. `box` bytes: from one box of 64 rows (columns) to the next, for mn.
template <Major kMajor>
__device__ __forceinline__ uint64_t operand_at(const void* at, int box) {
  // k: 8 rows of 128 bytes are an atom, the next atom holds the next 8 rows (columns).
  // mn: 8 values of k are an atom, the next one holds the next 8; 64 rows further is another box.
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kAtom = 8 * kBoxRow;
  const uint64_t leading = kMajor == Major::k ? 1 : uint64_t(box) >> 4;
  return kSwizzle128 | (kAtom >> 4) << 32 | leading << 16 | (shared_address(at) & 0x3ffff) >> 4;
}
// What leads from one product's 16 values of k to the next: 32 bytes in the rows, or 16 rows.
template <Major kMajor>
inline constexpr uint64_t kNextProduct = (kMajor == Major::k ? 32 : 16 * kBoxRow) >> 4;

// Before the first product, and after sums were touched by other instructions.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until no more than kPending groups of committed products are under way.
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// sums [64, 256] = a [64, 16] b [16, 256], added to what they hold if `keep`. Lane l of warp w
// holds rows 16 w + l / 4 (+ 8), columns 8 j + 2 (l % 4) (+ 1): sums[4 j + 2 (row half) + column].
#define PHX_8_SUMS(i)                                                                        \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define PHX_WGMMA_N256(type)                                                                       \
  asm volatile(                                                                                    \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %130, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                                 \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "           \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
      "%111, "                                                                                     \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
      "%127"                                                                                       \
      "}, %128, %129, keep, 1, 1, %131, %132;\n}\n"                                                \
      : PHX_8_SUMS(0), PHX_8_SUMS(8), PHX_8_SUMS(16), PHX_8_SUMS(24), PHX_8_SUMS(32),              \
        PHX_8_SUMS(40), PHX_8_SUMS(48), PHX_8_SUMS(56), PHX_8_SUMS(64), PHX_8_SUMS(72),            \
        PHX_8_SUMS(80), PHX_8_SUMS(88), PHX_8_SUMS(96), PHX_8_SUMS(104), PHX_8_SUMS(112),          \
        PHX_8_SUMS(120)                                                                            \
      : "l"(a), "l"(b), "r"(int(keep)), "n"(int(kMajorA)), "n"(int(kMajorB)))

template <class T, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void multiply_64x256(float (&sums)[128], uint64_t a, uint64_t b,
                                                bool keep) {
  if constexpr (std::is_same_v<T, bf16>)
    PHX_WGMMA_N256("bf16");
  else
    PHX_WGMMA_N256("f16");
}
#undef PHX_WGMMA_N256
#undef PHX_8_SUMS

}  // namespace phx::cuda
