// One optimizer step: forward and backward of every micro-batch in the order of the pipeline's
// schedule, reductions, gradient norm, update. Everything is enqueued; nothing waits for the
// device. What came out is collected a step later.
//
// The loss is the sum of token losses over the global batch / N. N is known before the forward (one
// exchange of the ranks' counts), so the backward starts from 1/N (times the loss scale) and
// gradients are plain sums: no other factor exists.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "core/step_scalars.h"
#include "nn/parameter_store.h"
#include "optim/optimizer.h"
#include "parallel/data/data_parallel.h"
#include "parallel/mesh.h"
#include "train/batch_loader.h"
#include "train/gpt_stage.h"
#include "train/layout.h"

namespace phx {

struct StepSettings {
  int64_t iteration = 1;  // from 1: the step that random numbers are keyed by
  int64_t update = 1;     // from 1: Adam's count of updates, this one included
  double lr = 0;
  std::optional<double> decoupled_lr = {};  // of embedding and output layer; lr if unset
  double weight_decay = 0;
  double loss_scale = 1;
  bool sticky_skip = true;
  double stop_vote = 0;  // of this rank; every rank hears the sum with the step's results
  // Called when everything but the update is enqueued: weights and optimizer state change from here
  // on, and a copy of them that is under way is waited for.
  std::function<void()> before_update = {};
};

// What a step works with.
struct StepParts {
  GptStage& stage;
  ParameterStore& store;
  DataParallel& data_parallel;
  Optimizer& optimizer;
  const Mesh& mesh;
  const Layout& layout;
};

class TrainStep {
 public:
  TrainStep(const StepParts& parts, const OptimizerConfig& config, uint64_t seed);

  // Enqueues the step on the given micro-batches, of which `tokens` count for the loss. Micro-batch
  // k begins with global sample first_sample + k * its width. One rank.
  void run(std::span<const Batch> micro_batches, int64_t tokens, int64_t first_sample,
           const StepSettings& settings);
  void run(const BatchLoader& loader, const StepSettings& settings);  // the loader's current batch

  // The oldest step not collected yet; waits for that one alone.
  StepResults collect() { return scalars_.collect(); }
  int pending() const { return scalars_.published(); }
  void forget() { scalars_.forget(); }  // the oldest step's results are not wanted (meta has none)
  StepScalars& scalars() { return scalars_; }

  // Mean token loss over `num_batches` global batches from `first_sample` on, without dropout;
  // nothing if `stop` said so in between.
  std::optional<double> evaluate(BatchLoader& batch, int64_t first_sample, int64_t num_batches,
                                 const std::function<bool()>& stop = {});

 private:
  void run(StageWork work, int64_t micro_batches, int64_t tokens, const StepSettings& settings);
  void begin(int64_t tokens, const StepSettings& settings);
  void warm_up(const StageWork& work);
  void reduce_gradients();
  const Schedule& schedule(const char* kind, int64_t micro_batches);
  bool counts_loss() const { return parts_.mesh.last_stage() && parts_.mesh.tp_rank() == 0; }

  StepParts parts_;
  OptimizerConfig config_;
  uint64_t seed_;
  StepScalars scalars_;
  Tensor grad_scale_;  // [1] loss_scale / N
  bool warm_ = false;
  std::map<std::pair<std::string, int64_t>, Schedule> schedules_;
  std::vector<FlatRange> summed_over_tp_, summed_over_ends_;  // of what this rank owns
  std::vector<FlatRange> counted_;                            // in the norm, once among all ranks
};

}  // namespace phx
