// A dataset that a program adds to those of the data flags: --dataset NAME. It opens sources of
// samples by number, like the built-in datasets.
#pragma once

#include <functional>
#include <string>

#include "phalanx/base/own_options.h"
#include "phalanx/data/gpt/datasets.h"

namespace phx {

struct DatasetCall {
  const DatasetRequest& request;  // length of a sample, end-of-document token, seed, how many
  const DataConfig& config;       // the data flags
  int64_t vocab_size = 0;
};

struct Dataset {
  std::string name, help;
  // By split: training, validation, test; null where there is no such part. Called by every rank.
  std::function<DatasetsBySplit(const DatasetCall& call, const OwnOptions& options)> open;
  SampleParts parts = {};  // what its samples carry: known before it is opened, for `plan`
  OwnOptions options = {};
};

}  // namespace phx
