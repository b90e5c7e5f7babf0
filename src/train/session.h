// Everything a run holds in memory: model, weights, optimizer, step, loaders. Built from the
// configs alone, on any device: a meta session allocates nothing and reports what the real one
// would.
#pragma once

#include <memory>
#include <optional>

#include "data/data_config.h"
#include "models/gpt/gpt_model.h"
#include "optim/optimizer.h"
#include "optim/optimizer_config.h"
#include "train/batch_loader.h"
#include "train/flops.h"
#include "train/train_config.h"
#include "train/train_step.h"

namespace phx {

struct RunConfig {
  TransformerConfig model;
  OptimizerConfig optim;
  TrainConfig train;
  DataConfig data;
  std::string json;  // all options, for the record
};

DType model_dtype(Precision precision);
RecomputePolicy recompute_policy(const TrainConfig& config);
FlopsShape flops_shape(const TransformerConfig& config);

// Where samples come from. Opened before anything is allocated: bad data ends a run at once.
struct Sources {
  explicit Sources(const RunConfig& config);
  std::shared_ptr<const SampleSource> train, valid, test;  // null: the data has no such part
};

struct Session {
  Session(const RunConfig& config, Device device) : Session(config, Sources(config), device) {}
  Session(const RunConfig& config, const Sources& sources, Device device);

  const RunConfig config;
  GptModel model;
  ParameterStore store;
  Optimizer optimizer;
  TrainStep step;
  BatchLoader train_batches;
  std::optional<BatchLoader> valid_batches, test_batches;  // none if the data has no such part
  std::string data_description;
};

}  // namespace phx
