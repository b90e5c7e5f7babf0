// Samples of random tokens: text that can be learned would shrink the gradients, and with them the
// card's power.
#pragma once

#include "phalanx/core/philox.h"
#include "phalanx/data/sample_source.h"

namespace phx {

class RandomTokens : public SampleSource {
 public:
  RandomTokens(int64_t vocab, int64_t seq_length) : vocab_(vocab), seq_length_(seq_length) {}
  void sample(int64_t index, Sample& out) const override {
    out.tokens.resize(size_t(seq_length_));
    out.labels.resize(size_t(seq_length_));
    for (int64_t i = 0; i < seq_length_; ++i) {
      out.tokens[size_t(i)] = token(index, i);
      out.labels[size_t(i)] = token(index, i + 1);
    }
  }
  std::string description() const override { return "random tokens"; }

 private:
  int32_t token(int64_t index, int64_t i) const {
    return int32_t(philox4x32(philox_key(1, 0, 0), uint32_t(index), uint32_t(i), 0, 0).x[0] %
                   uint32_t(vocab_));
  }
  int64_t vocab_, seq_length_;
};

}  // namespace phx
