// Mixtures of datasets by weight: how --data-path is read, how much of each dataset is needed, and
// which sample of which dataset comes when. All as Megatron has it; no randomness.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/data/sample_source.h"

namespace phx {

// [weight] prefix [weight] prefix ..
struct BlendSpec {
  std::vector<std::string> prefixes;
  std::vector<double> weights;  // as many, adding up to 1; or none
  bool empty() const { return prefixes.empty(); }
};
// Throws an Error that goes on after the flag's name.
BlendSpec parse_blend(std::span<const std::string> words);

// numpy.sum of doubles: pairwise, so that weights divided by it are Megatron's to the last bit.
double numpy_sum(std::span<const double> values);

struct BlendSizes {
  std::vector<int64_t> used;   // samples of each dataset in the blend
  std::vector<int64_t> built;  // samples each is made for: a few more
};
BlendSizes blend_sizes(std::span<const double> weights, int64_t num_samples, double surplus);

// In memory of its own or in a mapped file.
struct BlendIndex {
  std::span<const int16_t> dataset;         // [n]
  std::span<const int64_t> sample;          // [n]: in that dataset
  std::span<const int64_t> taken;           // [datasets]: samples of each
  std::shared_ptr<const void> memory = {};  // holds the three
};
// Every place goes to the dataset that is furthest behind its weight.
BlendIndex blend_index(std::span<const double> weights, int64_t num_samples);
// All samples of all datasets, in proportion to their sizes.
BlendIndex exhaustive_blend_index(std::span<const int64_t> sizes);

class BlendedDataset : public SampleSource {
 public:
  BlendedDataset(std::vector<std::shared_ptr<const SampleSource>> datasets, BlendIndex index);

  void sample(int64_t index, Sample& out) const override;
  SampleParts parts() const override { return datasets_.front()->parts(); }
  std::optional<int64_t> num_samples() const override { return int64_t(index_.dataset.size()); }
  std::string description() const override;
  const BlendIndex& index() const { return index_; }

 private:
  std::vector<std::shared_ptr<const SampleSource>> datasets_;
  BlendIndex index_;
};

}  // namespace phx
