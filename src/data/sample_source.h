// Samples by number: where tokens come from does not matter to the loop. A sample is seq_length + 1
// tokens: inputs are all but the last, labels all but the first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/mock_data.h"
#include "data/sample_order.h"
#include "data/token_file.h"

namespace phx {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // The sample at place `index` of the run's order; a pure function, any index >= 0.
  virtual void sample(int64_t index, std::span<int32_t> out) const = 0;  // out: [seq_length + 1]
  virtual std::string description() const = 0;
};

enum class Split { train, valid, test };

// A raw token file: training samples shuffled anew each epoch, validation and test in file order.
class TokenFileSource : public SampleSource {
 public:
  TokenFileSource(std::shared_ptr<const TokenFile> file, Split split, int64_t seq_length,
                  const std::array<double, 3>& shares, uint64_t seed);
  void sample(int64_t index, std::span<int32_t> out) const override;
  std::string description() const override;
  int64_t num_samples() const { return range_.count; }

 private:
  std::shared_ptr<const TokenFile> file_;
  SampleRange range_;
  Split split_;
  SampleOrder order_;
};

// Megatron's mock documents one after the other, endlessly.
class MockSource : public SampleSource {
 public:
  MockSource(int32_t vocab_size, int32_t eod);
  void sample(int64_t index, std::span<int32_t> out) const override;
  std::string description() const override { return "mock documents"; }

 private:
  MockDocuments documents_;
  std::vector<int64_t> ends_;  // running sum of the lengths
};

}  // namespace phx
