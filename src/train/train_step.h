// One optimizer step: forward and backward of every micro-batch in the order of the pipeline's
// schedule, reductions, gradient norm, update. Everything is enqueued; nothing waits for the
// device. What came out is collected a step later.
//
// The loss is the sum of token losses over the global batch / N. N is known before the forward (one
// exchange of the ranks' counts), so the backward starts from 1/N (times the loss scale) and
// gradients are plain sums: no other factor exists.
//
// With --loss-average micro-batch, Megatron's default, gradients are those of the mean over all
// micro-batches of the step, on all data-parallel ranks, of each one's mean: the backward of
// micro-batch k starts from 1 / (n_k M), n_k the tokens of it that count (at least 1), M the number
// of micro-batches of all ranks. The loss that is reported stays the sum / N, as Megatron's does.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/core/step_scalars.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/optim/optimizer.h"
#include "phalanx/parallel/data/data_parallel.h"
#include "phalanx/parallel/mesh.h"
#include "phalanx/parallel/pipeline/check.h"
#include "phalanx/train/batch_loader.h"
#include "phalanx/train/layout.h"
#include "phalanx/train/model_stage.h"
#include "phalanx/train/train_config.h"

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
  bool spoiled = false;  // this rank's batch is blank: no rank may update its weights by this step
  // Called when everything but the update is enqueued: weights and optimizer state change from here
  // on, and a copy of them that is under way is waited for.
  std::function<void()> before_update = {};
};

// Samples of some rank could not be read. Thrown by all ranks alike, whose weights are those of the
// last good step; `own` is this rank's error, if it had one.
class UnreadData : public Error {
 public:
  explicit UnreadData(std::exception_ptr error)
      : Error("another rank could not read its data"), own(std::move(error)) {}
  std::exception_ptr own;
};

// What a step works with.
struct StepParts {
  ModelStage& stage;
  ParameterStore& store;
  DataParallel& data_parallel;
  Optimizer& optimizer;
  const Mesh& mesh;
  const Layout& layout;
};

// What routers count in a step (kernels::RouterTally), a row a layer of the whole model.
struct TallyOptions {
  int64_t layers = 0, width = 0;  // 0: there are no routers
  bool at_end_of_step = false;    // parts of the model hear the counts of all ranks: StepEnd
};

struct LossOptions {
  LossAverage average = LossAverage::token;
  int64_t most_micro_batches = 1;  // of a step and data-parallel rank
  bool means = false;              // the model has losses that are means over a micro-batch
  // Evaluations with the average over micro-batches: Megatron has it for chats alone.
  bool evaluates_micro_batches = false;
  int64_t ahead = 0;  // tokens that are predicted beside the next one
};

class TrainStep {
 public:
  TrainStep(const StepParts& parts, const OptimizerConfig& config, uint64_t seed,
            const LossOptions& loss = {}, const TallyOptions& tally = {});

  // Enqueues the step on the given micro-batches, of which counts[k] tokens count for the loss.
  // Micro-batch k begins with global sample first_sample + k * its width. One rank.
  void run(std::span<const Batch> micro_batches, std::span<const int64_t> counts,
           int64_t first_sample, const StepSettings& settings);
  void run(const BatchLoader& loader, const StepSettings& settings);  // the loader's current batch

  // The oldest step not collected yet; waits for that one alone.
  StepResults collect() { return scalars_.collect(); }
  int pending() const { return scalars_.published(); }
  void forget() { scalars_.forget(); }  // the oldest step's results are not wanted (meta has none)
  StepScalars& scalars() { return scalars_; }

  // Collective: what the routers of all ranks counted in the last step, [layers, width]; waits for
  // it. Empty without routers.
  std::vector<double> router_tally();

  // Collective: the mean loss of each token ahead in the last step, before its weight; waits for
  // it. Empty where none is predicted.
  std::vector<double> losses_ahead();

  // Mean token loss (see LossOptions) over `num_batches` global batches from `first_sample` on,
  // without dropout; nothing if `stop` said so in between. Of several ranks all throw UnreadData if
  // one of them cannot read its samples.
  std::optional<double> evaluate(BatchLoader& batch, int64_t first_sample, int64_t num_batches,
                                 const std::function<bool()>& stop = {});

 private:
  // Tokens that count, of this rank's micro-batches: one number each.
  using Counts = std::span<const int64_t>;
  void run(StageWork work, Counts counts, const StepSettings& settings);
  void begin(Counts counts, const StepSettings& settings);
  double mean_of_means(const Tensor& losses, Counts counts);
  void warm_up(const StageWork& work);
  void reduce_gradients();
  void end_step();
  void count_ahead(const StageWork& work, int64_t micro_batches);
  const CheckedSchedule& schedule(const char* kind, int64_t micro_batches);
  // Whether what is known of whole samples enters a sum over the ranks: one of those that share a
  // sequence.
  bool counts_samples() const { return parts_.mesh.cp_rank() == 0; }
  bool counts_loss() const { return parts_.mesh.last_stage() && parts_.mesh.tp_rank() == 0; }

  StepParts parts_;
  OptimizerConfig config_;
  uint64_t seed_;
  StepScalars scalars_;
  LossOptions loss_;
  Tensor grad_scale_;  // [1] loss_scale / N, or one a micro-batch
  Tensor mean_scale_;  // [most micro-batches], where the model has such losses
  TallyOptions tally_options_;
  Tensor tally_, tally_sums_;  // f64 [layers, width]: this rank's, and a place to add ranks' up
  // Of tokens ahead, f64: this rank's sums of losses [ahead], and how many there are; all ranks'
  // sums and counts [2 ahead].
  Tensor ahead_tally_, ahead_sums_;
  std::vector<int64_t> counted_ahead_;
  bool warm_ = false;
  std::map<std::pair<std::string, int64_t>, CheckedSchedule> schedules_;
  // Of what this rank owns: gradients that are partial sums among `ranks`.
  struct LaterSum {
    Communicator* ranks;
    std::vector<FlatRange> ranges;
  };
  std::vector<LaterSum> later_sums_;
  std::vector<FlatRange> counted_;  // in the norm, once among all ranks
};

}  // namespace phx
