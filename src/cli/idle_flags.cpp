#include "phalanx/cli/idle_flags.h"

#include <algorithm>

namespace phx {
namespace {

void note_idle_training(const OptionSet& options, const PretrainOptions& values,
                        ParseReport& report) {
  if (!values.train.fp16) {
    for (const char* name : {"loss-scale", "initial-loss-scale", "min-loss-scale",
                             "loss-scale-window", "hysteresis"}) {
      if (options.at(name).given) {
        report.implied.emplace_back(str_cat("--", name), "only fp16 scales its loss");
      }
    }
  }
  const auto idle_with = [&](const char* rule, std::initializer_list<const char*> names) {
    if (values.optim.optimizer != rule) return;
    for (const char* name : names)
      if (options.at(name).given)
        report.implied.emplace_back(str_cat("--", name),
                                    str_cat("--optimizer ", rule, " does not have it"));
  };
  bool dense = false;
  for (int64_t layer = 0; layer < values.model.num_layers; ++layer)
    dense |= !values.model.has_experts(layer);
  if (options.at("mlp-chunks-for-training").given && !dense)
    report.implied.emplace_back("--mlp-chunks-for-training",
                                "all layers have experts, and none an MLP of its own");
  idle_with("adam", {"sgd-momentum"});
  idle_with("sgd", {"adam-beta1", "adam-beta2", "adam-eps"});
}

void note_idle_ranks(const OptionSet& options, const ParallelConfig& ranks, ParseReport& report) {
  const auto idle = [&](const char* name, bool idles, const char* why) {
    if (idles && options.at(name).given) report.implied.emplace_back(str_cat("--", name), why);
  };
  const bool one_stage = ranks.pipeline_model_parallel_size == 1;
  const bool one_chunk = !ranks.num_layers_per_virtual_pipeline_stage &&
                         !ranks.num_virtual_stages_per_pipeline_rank &&
                         ranks.pipeline_model_parallel_layout.empty();
  const char* pipeline = "there is no pipeline at PP 1";
  idle("pipeline-schedule", one_stage, pipeline);
  idle("account-for-embedding-in-pipeline-split", one_stage, pipeline);
  idle("account-for-loss-in-pipeline-split", one_stage, pipeline);
  idle("microbatch-group-size-per-virtual-pipeline-stage", one_stage || one_chunk,
       "a pipeline rank has one chunk of layers");
  const bool units = ranks.shards_by_unit();
  idle("ddp-bucket-size", !ranks.overlap_grad_reduce || units,
       units ? "with sharded gradients a layer is a bucket"
             : "without --overlap-grad-reduce gradients are one bucket");
  idle("data-parallel-sharding-strategy", !ranks.use_megatron_fsdp,
       "it is --use-megatron-fsdp's, which is not there");
  idle("outer-dp-sharding-strategy", ranks.num_distributed_optimizer_instances == 1,
       "there is one group of data-parallel ranks");
  const bool gathers = ranks.sharding() == Sharding::optim_grads_params;
  for (const char* name :
       {"suggested-communication-unit-size", "torch-fsdp2-no-reshard-after-forward"})
    idle(name, !gathers, "weights are not sharded");
  const bool one_context = ranks.context_parallel_size == 1;
  idle("cp-comm-type", one_context, "a rank has whole sequences at CP 1");
  idle("hierarchical-context-parallel-sizes",
       one_context || std::ranges::find(ranks.cp_comm_type, "a2a+p2p") == ranks.cp_comm_type.end(),
       one_context ? "a rank has whole sequences at CP 1" : "no layer has --cp-comm-type a2a+p2p");
  idle("tp-comm-overlap", ranks.tensor_model_parallel_size == 1, "there is no exchange at TP 1");
}

}  // namespace

void drop_sequence_parallel(ParallelConfig& ranks, ParseReport& report) {
  if (!ranks.sequence_parallel || ranks.tensor_model_parallel_size != 1) return;
  ranks.sequence_parallel = false;
  report.implied.emplace_back("--sequence-parallel",
                              "it is switched off at TP 1: there is one rank to hold the sequence");
}

void note_idle_flags(const OptionSet& options, const PretrainOptions& values, ParseReport& report) {
  note_idle_training(options, values, report);
  note_idle_ranks(options, values.parallel, report);
}

}  // namespace phx
