// Mock data: documents that need no file, the same as Megatron's --mock-data. 100 000 documents;
// the one of length L reads 1, 2, .., L - 1 (mod vocabulary), end of document.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "phalanx/data/sequence_store.h"

namespace phx {

// numpy.random.default_rng(seed), as far as mock data needs it: PCG64 seeded by a SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint32_t seed);

  uint64_t next_u64();
  // Generator.integers(low, high, dtype=int32): in [low, high).
  int32_t integer(int32_t low, int32_t high);

 private:
  uint32_t next_u32();  // halves of a 64-bit number, the low one first

  unsigned __int128 state_ = 0, increment_ = 0;
  uint32_t spare_ = 0;
  bool has_spare_ = false;
};

class MockDocuments : public SequenceStore {
 public:
  static constexpr int64_t kNumDocuments = 100000;

  MockDocuments(int32_t vocab_size, int32_t eod);

  LengthsView lengths() const override {
    return {reinterpret_cast<const std::byte*>(lengths_.data()), kNumDocuments};
  }
  void copy(int64_t document, int64_t offset, std::span<int32_t> out) const override;
  std::string name() const override { return "mock documents"; }
  std::vector<int32_t> document(int64_t index) const;

 private:
  int32_t vocab_size_, eod_;
  std::vector<int32_t> lengths_;
};

}  // namespace phx
