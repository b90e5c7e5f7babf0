// The datasets of a run, from its options: splits of one blend, a blend a split, or mock documents.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "phalanx/data/data_config.h"
#include "phalanx/data/gpt/blend.h"
#include "phalanx/data/gpt/gpt_dataset.h"
#include "phalanx/data/sample_source.h"

namespace phx {

struct DatasetRequest {
  GptSampleOptions sample;
  // Of training, validation and test; none: what one epoch has.
  std::array<std::optional<int64_t>, 3> num_samples;
  uint32_t seed = 1234;
};

// By split; null where the data has no such part.
using DatasetsBySplit = std::array<std::shared_ptr<const SampleSource>, 3>;

DatasetsBySplit make_datasets(const DataConfig& config, const DatasetRequest& request);

// The pairs that a split is made of, with their weights: its own blend, or the common one.
BlendSpec blend_of(const DataConfig& config, Split split);

// One split, as the trainer would see it: for inspection.
std::shared_ptr<const SampleSource> make_dataset(const DataConfig& config,
                                                 const DatasetRequest& request, Split split);

// Megatron's --mock-data. Indices are made when the first sample is asked for.
DatasetsBySplit make_mock_datasets(int32_t vocab_size, int32_t eod, const DatasetRequest& request);

}  // namespace phx
