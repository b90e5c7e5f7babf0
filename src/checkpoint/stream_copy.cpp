#include "phalanx/checkpoint/stream_copy.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

namespace phx {

#ifdef __AVX2__

void stream_copy(void* to, const void* from, int64_t bytes) {
  constexpr int64_t kVector = sizeof(__m256i), kLine = 2 * kVector;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const auto plain = [&](int64_t count) {
    std::memcpy(out, in, size_t(count));
    out += count, in += count, bytes -= count;
  };
  const int64_t behind = int64_t(reinterpret_cast<uintptr_t>(to) % kLine);
  plain(std::min(bytes, behind == 0 ? 0 : kLine - behind));
  for (; bytes >= kLine; out += kLine, in += kLine, bytes -= kLine)
    for (int64_t i = 0; i < kLine; i += kVector)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)));
  plain(bytes);
  _mm_sfence();  // seen by others in the order of what follows
}

#else

void stream_copy(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, size_t(bytes));
}

#endif

}  // namespace phx
