// Where a run of Megatron's stood, from the replicated state of its checkpoint.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "phalanx/checkpoint/manifest.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/train/run_state.h"

namespace phx {

// Nothing if the state does not say the iteration and the samples that it took. Without Adam's step
// its `updates` are 0, without the scheduler's position it is that of the samples.
std::optional<RunState> megatron_run_state(const std::string& common_json);

// An error if the state lacks Adam's step or the position of the schedules, without which a run
// cannot go on with the optimizer's state.
void check_counters(const MegatronModel& model);

// The options of the run as in options.json, as far as ours have them: the model, batches, length,
// learning rate, weight decay, Adam. What Megatron fills in by itself (a decay as long as the run)
// is unset again. An error if the checkpoint does not hold its arguments.
nlohmann::json megatron_run_options(const MegatronModel& model);

// What a checkpoint of ours would say beside its tensors: "options" and "schedule", each if the
// state tells it. Its "state" is megatron_run_state().
CheckpointInfo megatron_info(const MegatronModel& model);

// The way back. What a checkpoint of ours says, as Megatron finds it in its own: `args` is the
// namespace of its arguments, `common` further replicated state in the form of
// checkpoint/torch/torch_object.h. `info` has "options", and "state" and "schedule" if it is of a
// run; `optimizer`: its optimizer state is written too, for a run of Megatron's with experts on
// `expert_ranks` ranks: its optimizers are two then. `format`: the folder's --ckpt-format.
struct MegatronCommon {
  std::string args, common;
};
MegatronCommon megatron_common(const CheckpointInfo& info, int64_t padded_vocab_size,
                               bool optimizer, int64_t expert_ranks = 1,
                               const std::string& format = "torch_dist");

}  // namespace phx
