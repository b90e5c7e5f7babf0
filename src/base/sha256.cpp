#include "phalanx/base/sha256.h"

#include <algorithm>
#include <bit>
#include <string>

namespace phx {

namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;

uint32_t word_at(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void add_block(State& state, const uint8_t* block) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t) w[t] = word_at(block + 4 * t);
  for (int t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t choice = (e & f) ^ (~e & g);
    const uint32_t first = h + sum1 + choice + kRound[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + sum0 + majority;
  }
  const uint32_t sums[] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += sums[i];
}

std::string_view text_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Digest sha256(std::string_view message) {
  // A one bit, zeros up to a multiple of 64 bytes, and the length in bits.
  std::string padded(message);
  padded += char(0x80);
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8)
    padded += char(uint8_t(uint64_t{message.size()} * 8 >> shift));

  // The first 32 bits of the fractional parts of the square roots of the first 8 primes.
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  for (size_t at = 0; at < padded.size(); at += 64)
    add_block(state, reinterpret_cast<const uint8_t*>(padded.data()) + at);
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = uint8_t(state[i / 4] >> (24 - i % 4 * 8));
  return digest;
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  constexpr size_t kBlock = 64;
  std::string block(key);
  if (key.size() > kBlock) block = text_of(sha256(key));
  block.resize(kBlock, '\0');
  std::string inner = block, outer = block;
  std::transform(block.begin(), block.end(), inner.begin(), [](char c) { return char(c ^ 0x36); });
  std::transform(block.begin(), block.end(), outer.begin(), [](char c) { return char(c ^ 0x5c); });
  inner += message;
  outer += text_of(sha256(inner));
  return sha256(outer);
}

bool same_digest(const Digest& a, const Digest& b) {
  volatile uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = uint8_t(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace phx
