#include "phalanx/data/mock_data.h"

#include "phalanx/base/error.h"

namespace phx {
namespace {

using Wide = unsigned __int128;

constexpr Wide wide(uint64_t high, uint64_t low) { return Wide{high} << 64 | low; }

constexpr Wide kPcgMultiplier = wide(0x2360ED051FC65DA4u, 0x4385DF649FCCF645u);
constexpr int32_t kMinLength = 1, kLengthEnd = 4096;

// One step of the seed hash: `constant` changes with every word that goes through it.
uint32_t hash_word(uint32_t word, uint32_t& constant, uint32_t multiplier) {
  word ^= constant;
  constant *= multiplier;
  word *= constant;
  return word ^ word >> 16;
}

uint32_t mix_words(uint32_t x, uint32_t y) {
  const uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
  return mixed ^ mixed >> 16;
}

// numpy's SeedSequence for a seed of one word: a pool of four words, every one mixed into every
// other, from which the generator's state is drawn.
std::array<uint64_t, 4> seed_words(uint32_t seed) {
  std::array<uint32_t, 4> pool{};
  uint32_t constant = 0x43b0d7e5u;
  for (size_t i = 0; i < pool.size(); ++i) {
    pool[i] = hash_word(i == 0 ? seed : 0u, constant, 0x931e8875u);
  }
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      pool[to] = mix_words(pool[to], hash_word(pool[from], constant, 0x931e8875u));
    }
  }
  constant = 0x8b51f9ddu;
  std::array<uint64_t, 4> words{};
  for (size_t i = 0; i < 8; ++i) {  // low halves first
    const uint64_t half = hash_word(pool[i % 4], constant, 0x58f38dedu);
    words[i / 2] |= half << (i % 2 * 32);
  }
  return words;
}

}  // namespace

NumpyGenerator::NumpyGenerator(uint32_t seed) {
  const std::array<uint64_t, 4> words = seed_words(seed);
  increment_ = wide(words[2], words[3]) << 1 | 1;
  state_ = increment_ + wide(words[0], words[1]);  // a step from 0, then the seed is added
  state_ = state_ * kPcgMultiplier + increment_;
}

uint64_t NumpyGenerator::next_u64() {
  state_ = state_ * kPcgMultiplier + increment_;
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  const int turn = static_cast<int>(state_ >> 122);
  return folded >> turn | folded << (-turn & 63);
}

uint32_t NumpyGenerator::next_u32() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const uint64_t both = next_u64();
  spare_ = static_cast<uint32_t>(both >> 32);
  has_spare_ = true;
  return static_cast<uint32_t>(both);
}

int32_t NumpyGenerator::integer(int32_t low, int32_t high) {
  PHX_ASSERT(low < high, "empty range [", low, ", ", high, ")");
  const uint32_t range = static_cast<uint32_t>(high) - static_cast<uint32_t>(low);
  if (range == 1) return low;  // numpy draws nothing then
  // Lemire's method: the high half of a product is uniform once a few low halves are refused.
  const uint32_t threshold = (0u - range) % range;
  uint64_t product;
  do {
    product = uint64_t{next_u32()} * range;
  } while (static_cast<uint32_t>(product) < threshold);
  return static_cast<int32_t>(static_cast<uint32_t>(low) + static_cast<uint32_t>(product >> 32));
}

MockDocuments::MockDocuments(int32_t vocab_size, int32_t eod)
    : vocab_size_(vocab_size), eod_(eod), lengths_(kNumDocuments) {
  PHX_CHECK(vocab_size > 0, "mock data: the vocabulary should have a token, but its size is ",
            vocab_size);
  PHX_CHECK(eod >= 0 && eod < vocab_size, "mock data: the end-of-document token ", eod,
            " is not in the vocabulary 0..", vocab_size - 1);
  NumpyGenerator generator(0);
  for (int32_t& length : lengths_) length = generator.integer(kMinLength, kLengthEnd);
}

void MockDocuments::copy(int64_t document, int64_t offset, std::span<int32_t> out) const {
  PHX_ASSERT(document >= 0 && document < kNumDocuments, "document ", document);
  const int64_t length = lengths_[document], end = offset + static_cast<int64_t>(out.size());
  PHX_ASSERT(offset >= 0 && end <= length, "tokens [", offset, ", ", end, ") of ", length);
  for (int64_t i = offset; i < end; ++i) {
    out[i - offset] = i == length - 1 ? eod_ : static_cast<int32_t>((i + 1) % vocab_size_);
  }
}

std::vector<int32_t> MockDocuments::document(int64_t index) const {
  std::vector<int32_t> tokens(lengths_[index]);
  copy(index, 0, tokens);
  return tokens;
}

}  // namespace phx
