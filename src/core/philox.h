// Random numbers as pure functions of global indices: Philox4x32-10 (Salmon et al., SC 2011). The
// key is (seed, site, step), the counter says which element; nothing is stored, and the same
// element gets the same number on every device and under every layout.
//
// All arithmetic below is integer, or float with every rounding spelled out (fma and separate
// products), so that the CPU and the GPU produce the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "phalanx/core/host_device.h"
#include "phalanx/core/small_float.h"

namespace phx {

struct Philox4 {
  uint32_t x[4];
};

PHX_HD Philox4 philox4x32(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The finaliser of splitmix64: a bijection that spreads every bit.
PHX_HD uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Which random decision this is: a hash of a parameter's name or of "layer.op".
constexpr uint64_t site_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (char c : name) hash = (hash ^ uint8_t(c)) * 0x100000001B3ull;
  return hash;
}

PHX_HD uint64_t philox_key(uint64_t seed, uint64_t site, uint64_t step) {
  return mix64(mix64(seed + 0x9E3779B97F4A7C15ull) ^ mix64(site) ^ (step * 0xD1342543DE82EF95ull));
}

// Uniform in (0, 1): the middles of 2^23 equal pieces, each exact in float, so never 0 or 1.
PHX_HD float uniform_from(uint32_t bits) { return (float(bits >> 9) + 0.5f) * (1.f / 8388608.f); }

namespace detail {

PHX_HD float mul(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);  // never contracted into an fma
#else
  return a * b;  // the host is compiled with -ffp-contract=off
#endif
}
PHX_HD float add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
PHX_HD float fma(float a, float b, float c) { return ::fmaf(a, b, c); }

// Natural logarithm for normal x > 0, about 1 ulp.
PHX_HD float log_poly(float x) {
  const uint32_t bits = float_bits(x);
  int exponent = int(bits >> 23) - 127;
  float m = bits_float((bits & 0x007fffffu) | 0x3f800000u);  // [1, 2)
  if (m > 1.41421356f) {
    m = mul(m, 0.5f);
    ++exponent;
  }
  // log m = 2 atanh(z), z = (m - 1) / (m + 1), |z| < 0.172
  const float z = add(m, -1.f) / add(m, 1.f);
  const float z2 = mul(z, z);
  float p = 0.22222222f;  // 2 / 9
  p = fma(p, z2, 0.28571430f);
  p = fma(p, z2, 0.4f);
  p = fma(p, z2, 0.66666669f);
  const float tail = mul(mul(p, z2), z);
  return fma(float(exponent), 0.69314718f, fma(2.f, z, tail));
}

}  // namespace detail

// Standard normal from 32 random bits, by the inverse of the normal distribution function: rational
// approximations of erfinv in w = -log(1 - x^2) (M. Giles, "Approximating the erfinv function",
// 2010).
PHX_HD float normal_from(uint32_t bits) {
  using detail::add;
  using detail::fma;
  using detail::mul;
  const float x = fma(2.f, uniform_from(bits), -1.f);  // (-1, 1), exact
  float w = -detail::log_poly(mul(add(1.f, -x), add(1.f, x)));
  float p;
  if (w < 5.f) {
    w = add(w, -2.5f);
    p = 2.81022636e-08f;
    p = fma(p, w, 3.43273939e-07f);
    p = fma(p, w, -3.5233877e-06f);
    p = fma(p, w, -4.39150654e-06f);
    p = fma(p, w, 0.00021858087f);
    p = fma(p, w, -0.00125372503f);
    p = fma(p, w, -0.00417768164f);
    p = fma(p, w, 0.246640727f);
    p = fma(p, w, 1.50140941f);
  } else {
#ifdef __CUDA_ARCH__
    w = add(__fsqrt_rn(w), -3.f);
#else
    w = add(std::sqrt(w), -3.f);
#endif
    p = -0.000200214257f;
    p = fma(p, w, 0.000100950558f);
    p = fma(p, w, 0.00134934322f);
    p = fma(p, w, -0.00367342844f);
    p = fma(p, w, 0.00573950773f);
    p = fma(p, w, -0.0076224613f);
    p = fma(p, w, 0.00943887047f);
    p = fma(p, w, 1.00167406f);
    p = fma(p, w, 2.83297682f);
  }
  return mul(mul(p, x), 1.41421356f);
}

}  // namespace phx
