// exp, log, tanh, sigmoid and erf for CPU kernels. The float versions are straight-line code
// without branches or calls, so that the compiler turns a loop over them into vector code; every
// result is within 2.5 units in the last place, and inf, -inf, nan and underflow come out as in
// libm (a test measures both). The double versions are the library's: f64 is for proofs.
//
// The polynomials are minimax fits of our own, made in double and rounded to float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace phx::kernels::cpu {

namespace detail {

inline float as_float(int32_t bits) { return std::bit_cast<float>(bits); }
inline int32_t as_int(float value) { return std::bit_cast<int32_t>(value); }
inline float with_sign_of(float magnitude, float sign) {
  return as_float(as_int(magnitude) | (as_int(sign) & int32_t(0x80000000)));
}
inline float magnitude_of(float x) { return as_float(as_int(x) & 0x7fffffff); }

inline float exp(float x) {
  // Beyond these the result is inf or 0 anyway. A nan passes both comparisons.
  x = x > 89.f ? 89.f : x;
  x = x < -105.f ? -105.f : x;
  // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the
  // low bits.
  const float shifted = std::fma(x, 1.44269504f, 12582912.f);
  const float n = shifted - 12582912.f;
  float r = std::fma(n, -0.693359375f, x);  // 9 bits of ln 2: the product is exact
  r = std::fma(n, 2.12194440e-4f, r);       // and the rest of it
  float p = 0.00138144672f;                 // (e^r - 1 - r) / r^2, error 3e-9
  p = std::fma(p, r, 0.00836878084f);
  p = std::fma(p, r, 0.0416683927f);
  p = std::fma(p, r, 0.166665196f);
  p = std::fma(p, r, 0.49999994f);
  p = std::fma(p * r, r, r) + 1.f;
  // 2^n in two factors: n reaches from -151 to 128, past both ends of one exponent.
  const int32_t whole = as_int(shifted) - 0x4b400000;
  const int32_t half = whole >> 1;
  return p * as_float((half + 127) << 23) * as_float((whole - half + 127) << 23);
}

inline float log(float x) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const bool tiny = x < 1.17549435e-38f;  // subnormals get an exponent of their own
  const float scaled = tiny ? x * 8388608.f : x;
  // scaled = 2^e m, sqrt(1/2) <= m < sqrt(2)
  const int32_t bits = as_int(scaled);
  const int32_t e = (bits - 0x3f3504f3) >> 23;
  const float f = as_float(bits - (e << 23)) - 1.f;
  float p = -0.0763449371f;  // (log(1 + f) - f + f^2 / 2) / f^3, error 6e-9
  p = std::fma(p, f, 0.12761575f);
  p = std::fma(p, f, -0.131601825f);
  p = std::fma(p, f, 0.142017588f);
  p = std::fma(p, f, -0.166233569f);
  p = std::fma(p, f, 0.200012267f);
  p = std::fma(p, f, -0.250008196f);
  p = std::fma(p, f, 0.333333313f);
  const float n = float(e - (tiny ? 23 : 0));
  const float square = f * f;
  float tail = std::fma(p * f, square, n * -2.12194440e-4f);
  tail = std::fma(-0.5f, square, tail);
  float y = std::fma(n, 0.693359375f, f + tail);
  y = x == kInf ? kInf : y;
  y = x == 0.f ? -kInf : y;
  return x >= 0.f ? y : std::numeric_limits<float>::quiet_NaN();
}

inline float tanh(float x) {
  const float a = magnitude_of(x), u = a * a;
  float p = -0.00571704516f;  // (tanh(a) / a - 1) / a^2 up to 0.625, error 4e-9
  p = std::fma(p, u, 0.020650588f);
  p = std::fma(p, u, -0.0537434965f);
  p = std::fma(p, u, 0.133314908f);
  p = std::fma(p, u, -0.333332837f);
  const float small = std::fma(p * u, a, a);
  const float large = 1.f - 2.f / (exp(a + a) + 1.f);
  return with_sign_of(a < 0.625f ? small : large, x);
}

inline float sigmoid(float x) {
  const float z = exp(-magnitude_of(x));   // at most 1: nothing overflows on either side
  return (x < 0.f ? z : 1.f) / (1.f + z);  // a nan comes back through z
}

inline float erf(float x) {
  const float a = magnitude_of(x), u = a * a;
  float p = 8.26746182e-05f;  // erf(a) / a - 1 in u, up to 0.9375, error 5e-10
  p = std::fma(p, u, -0.00081180752f);
  p = std::fma(p, u, 0.00519882981f);
  p = std::fma(p, u, -0.0268584974f);
  p = std::fma(p, u, 0.112836793f);
  p = std::fma(p, u, -0.376126319f);
  p = std::fma(p, u, 0.128379226f);
  const float small = std::fma(p, a, a);
  // From 4 on erf is 1 in float. The clamp keeps a nan.
  const float t = a > 4.f ? 4.f : a;
  float q = 2.12178566e-05f;  // -log(erfc(t)), error 4e-11 after the exponential
  q = std::fma(q, t, -0.000435884023f);
  q = std::fma(q, t, 0.00417795917f);
  q = std::fma(q, t, -0.0251376126f);
  q = std::fma(q, t, 0.108308256f);
  q = std::fma(q, t, 0.633321285f);
  q = std::fma(q, t, 1.12952769f);
  q = std::fma(q, t, -0.000177333772f);
  const float large = 1.f - exp(-q);
  return with_sign_of(a < 0.9375f ? small : large, x);
}

}  // namespace detail

template <class T>
inline T fast_exp(T x) {
  if constexpr (std::is_same_v<T, double>)
    return std::exp(x);
  else
    return detail::exp(x);
}

template <class T>
inline T fast_log(T x) {
  if constexpr (std::is_same_v<T, double>)
    return std::log(x);
  else
    return detail::log(x);
}

template <class T>
inline T fast_tanh(T x) {
  if constexpr (std::is_same_v<T, double>)
    return std::tanh(x);
  else
    return detail::tanh(x);
}

// 1 / (1 + e^-x)
template <class T>
inline T sigmoid(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
  else
    return detail::sigmoid(x);
}

template <class T>
inline T fast_erf(T x) {
  if constexpr (std::is_same_v<T, double>)
    return std::erf(x);
  else
    return detail::erf(x);
}

}  // namespace phx::kernels::cpu
