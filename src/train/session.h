// Everything a run holds in memory: model, weights, optimizer, step, loaders. Built from the
// configs alone, on any device: a meta session allocates nothing and reports what the real one
// would.
#pragma once

#include <memory>
#include <optional>

#include "phalanx/data/chat/sft_config.h"
#include "phalanx/data/data_config.h"
#include "phalanx/optim/optimizer.h"
#include "phalanx/optim/optimizer_config.h"
#include "phalanx/parallel/data/data_parallel.h"
#include "phalanx/parallel/parallel_config.h"
#include "phalanx/report/flops.h"
#include "phalanx/train/batch_loader.h"
#include "phalanx/train/batch_schedule.h"
#include "phalanx/train/catalogue.h"
#include "phalanx/train/train_config.h"
#include "phalanx/train/train_step.h"

namespace phx {

struct RunConfig {
  // What the names in the configs below mean, with the values of the entries' own options.
  Catalogue catalogue = standard_catalogue();
  ModelFamily family = default_model();  // the model that is trained
  TransformerConfig model;
  ParallelConfig parallel;
  OptimizerConfig optim;
  TrainConfig train;
  DataConfig data;
  SftConfig sft = {};
  std::string json;  // all options, for the record

  LayoutConfig layout() const { return {model, parallel, train, catalogue.pipeline_schedules}; }
  const Loss& loss() const { return entry_of(catalogue.losses, train.loss, "--loss"); }
  const Dataset* dataset() const {  // null: the data flags say what is trained on
    if (data.dataset.empty()) return nullptr;
    return &entry_of(catalogue.datasets, data.dataset, "--dataset");
  }
};

DType model_dtype(Precision precision);
RecomputePolicy recompute_policy(const TrainConfig& config);
FlopsShape flops_shape(const TransformerConfig& config);

int64_t vocabulary_of(const TransformerConfig& model);  // ids that tokens may have

// Where samples come from. Opened before anything is allocated: bad data ends a run at once.
struct Sources {
  explicit Sources(const RunConfig& config);
  // The same parts, of made-up tokens: for whoever needs shapes alone. Opens nothing.
  static Sources made_up(const RunConfig& config);
  std::shared_ptr<const SampleSource> train, valid, test;  // null: the data has no such part

  const SampleSource& first() const { return train ? *train : *valid; }  // all have the same parts

 private:
  Sources() = default;
};

// A rank's share of a run. `mesh` outlives it.
struct Session {
  Session(const RunConfig& config, Device device);  // one rank
  Session(const RunConfig& config, const Sources& sources, Device device);
  Session(const RunConfig& config, const Sources& sources, Device device, const Mesh& mesh);

  Model& model() { return *chunks.at(0); }  // of one rank: all of it
  int64_t data_parallel_size() const { return mesh.sizes().dp; }
  // The training batch that comes after `consumed` samples.
  void load_batch(int64_t consumed);
  std::exception_ptr try_load_batch(int64_t consumed);  // see BatchLoader::try_load

  const RunConfig config;
  const Mesh& mesh;
  const Layout layout;
  const BatchSchedule batch_schedule;
  std::vector<std::unique_ptr<Model>> chunks;  // the parts of the model that this rank holds
  ParameterStore store;                        // what is trained
  ParameterStore frozen, buffers;  // weights that stay as they are; what has no gradient
  DataParallel data_parallel;
  Optimizer optimizer;
  ModelStage stage;
  TrainStep step;
  BatchLoader train_batches;
  std::optional<BatchLoader> valid_batches, test_batches;  // none if the data has no such part
  std::shared_ptr<const SampleSource> samples;  // to train on; if there are none, to evaluate on
  std::string data_description;
};

}  // namespace phx
