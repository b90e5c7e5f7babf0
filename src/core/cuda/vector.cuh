// Vector loads and stores: kWide elements at once, 16 bytes where the type allows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "phalanx/core/small_float.h"

namespace phx::cuda {

template <class T, int kWide>
struct alignas(sizeof(T) * kWide <= 16 ? sizeof(T) * kWide : 16) Pack {
  T at[kWide];
  __device__ __forceinline__ T& operator[](int i) { return at[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return at[i]; }
};

template <int kWide, class T>
__device__ __forceinline__ Pack<T, kWide> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWide>*>(from);
}

template <class T, int kWide>
__device__ __forceinline__ void store(T* to, const Pack<T, kWide>& values) {
  *reinterpret_cast<Pack<T, kWide>*>(to) = values;
}

// 16 bytes of elements that stay packed in four registers until they are opened, and are closed two
// elements at a time. A Pack's elements tend to be unpacked by the compiler as soon as they arrive,
// into a register each.
template <class T>
struct Packed {
  static constexpr int kWide = 16 / sizeof(T);
  uint4 words;

  __device__ __forceinline__ static Packed load(const T* from) {
    return {*reinterpret_cast<const uint4*>(from)};
  }
  __device__ __forceinline__ void store(T* to) const { *reinterpret_cast<uint4*>(to) = words; }

  __device__ __forceinline__ void open(float (&out)[kWide]) const {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        out[i] = __uint_as_float(word[i]);
      } else if constexpr (std::is_same_v<T, bf16>) {
        out[2 * i] = __uint_as_float(word[i] << 16);
        out[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
      } else {
        const float2 both = __half22float2(reinterpret_cast<const __half2&>(word[i]));
        out[2 * i] = both.x;
        out[2 * i + 1] = both.y;
      }
    }
  }

  __device__ __forceinline__ static Packed close(const float (&in)[kWide]) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        word[i] = __float_as_uint(in[i]);
      } else if constexpr (std::is_same_v<T, bf16>) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
        word[i] = reinterpret_cast<const uint32_t&>(both);
      } else {
        const __half2 both = __floats2half2_rn(in[2 * i], in[2 * i + 1]);
        word[i] = reinterpret_cast<const uint32_t&>(both);
      }
    }
    return {{word[0], word[1], word[2], word[3]}};
  }

  // What was opened before is opened again afterwards, instead of being kept in registers.
  __device__ __forceinline__ void forget_opened() {
    asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
  }
};

}  // namespace phx::cuda
