// The 16- and 8-bit floating types. They are storage: arithmetic widens to float, and a store
// rounds once, to nearest even. f8 stores saturate at the largest finite value (448 and 57344), NaN
// stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "phalanx/core/host_device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace phx {

namespace detail {

PHX_HD uint32_t float_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}

PHX_HD float bits_float(uint32_t x) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(x);
#else
  return std::bit_cast<float>(x);
#endif
}

// Rounds a float to a format with `kMantissa` stored mantissa bits, exponent bias `kBias` and
// largest finite bit pattern `kMax`; `kInf` is what larger values become (kMax itself: saturation).
template <int kMantissa, int kBias, uint32_t kMax, uint32_t kInf, uint32_t kNan, int kSignShift>
inline uint32_t round_to_small(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 31) << kSignShift;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | kNan;
  constexpr int kDrop = 23 - kMantissa;
  constexpr uint32_t kSmallestNormal = uint32_t(127 - kBias + 1) << 23;
  uint32_t rounded;
  if (magnitude < kSmallestNormal) {
    // Subnormal in the small format: adding 2^(1-bias+23-mantissa) lines the last kept bit up with
    // the float's own last bit, so that the hardware's rounding to nearest even does the work.
    const float magic = bits_float(uint32_t(127 - kBias + 1 + kDrop) << 23);
    rounded = float_bits(bits_float(magnitude) + magic) - float_bits(magic);
  } else {
    const uint32_t odd = (magnitude >> kDrop) & 1u;
    rounded = (magnitude + ((1u << (kDrop - 1)) - 1u) + odd) >> kDrop;
    rounded -= uint32_t(127 - kBias) << kMantissa;
  }
  return sign | (rounded > kMax ? kInf : rounded);
}

template <int kMantissa, int kExponent, int kBias>
inline float widen_small(uint32_t bits) {
  const uint32_t sign = (bits >> (kMantissa + kExponent)) & 1u;
  const uint32_t exponent = (bits >> kMantissa) & ((1u << kExponent) - 1u);
  const uint32_t mantissa = bits & ((1u << kMantissa) - 1u);
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^(1-bias-mantissa bits), exact in float
    const float scale = bits_float(uint32_t(127 + 1 - kBias - kMantissa) << 23);
    const float magnitude = float(mantissa) * scale;
    return sign ? -magnitude : magnitude;
  }
  return bits_float((sign << 31) | ((exponent + 127 - kBias) << 23) |
                    (mantissa << (23 - kMantissa)));
}

}  // namespace detail

struct bf16 {
  uint16_t bits;
  bf16() = default;
  PHX_HD explicit bf16(float x) {
#ifdef __CUDA_ARCH__
    bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    const uint32_t b = detail::float_bits(x);
    const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
    bits = uint16_t((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40u : rounded);
#endif
  }
  PHX_HD operator float() const { return detail::bits_float(uint32_t{bits} << 16); }
};

struct f16 {
  uint16_t bits;
  f16() = default;
  PHX_HD explicit f16(float x) {
#ifdef __CUDA_ARCH__
    bits = __half_as_ushort(__float2half_rn(x));
#else
    bits = uint16_t(detail::round_to_small<10, 15, 0x7bff, 0x7c00, 0x7e00, 15>(x));
#endif
  }
  PHX_HD operator float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(bits));
#else
    if ((bits & 0x7c00u) == 0x7c00u)
      return detail::bits_float((uint32_t(bits & 0x8000u) << 16) | 0x7f800000u |
                                (uint32_t(bits & 0x3ffu) << 13));
    return detail::widen_small<10, 5, 15>(bits);
#endif
  }
};

struct f8e4m3 {
  uint8_t bits;
  f8e4m3() = default;
  PHX_HD explicit f8e4m3(float x) {
#ifdef __CUDA_ARCH__
    bits = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
#else
    bits = uint8_t(detail::round_to_small<3, 7, 0x7e, 0x7e, 0x7f, 7>(x));
#endif
  }
  PHX_HD operator float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3));
#else
    if ((bits & 0x7fu) == 0x7fu) return detail::bits_float(0x7fc00000u);
    return detail::widen_small<3, 4, 7>(bits);
#endif
  }
};

struct f8e5m2 {
  uint8_t bits;
  f8e5m2() = default;
  PHX_HD explicit f8e5m2(float x) {
#ifdef __CUDA_ARCH__
    bits = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
#else
    bits = uint8_t(detail::round_to_small<2, 15, 0x7b, 0x7b, 0x7f, 7>(x));
#endif
  }
  PHX_HD operator float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__nv_cvt_fp8_to_halfraw(bits, __NV_E5M2));
#else
    if ((bits & 0x7cu) == 0x7cu)
      return detail::bits_float((uint32_t(bits & 0x80u) << 24) | 0x7f800000u |
                                (uint32_t(bits & 3u) << 21));
    return detail::widen_small<2, 5, 15>(bits);
#endif
  }
};

}  // namespace phx
