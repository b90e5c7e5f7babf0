#include <algorithm>
#include <numeric>
#include <set>

#include "phalanx/base/named_entry.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/train/batch_schedule.h"
#include "phalanx/train/layout.h"
#include "phalanx/train/placement_config.h"

namespace phx {

namespace {

// "2 and 4 do": the divisors of `total` around `given`.
std::string nearest_divisors(int64_t total, int64_t given) {
  int64_t below = 1, above = total;
  for (int64_t i = 1; i <= total; ++i) {
    if (total % i != 0) continue;
    if (i < given) below = i;
    if (i > given) above = std::min(above, i);
  }
  if (below == above || given > total) return str_cat(below, " is the nearest that does");
  return str_cat(below, " and ", above, " are the nearest that do");
}

class Checker {
 public:
  Checker(const LayoutConfig& config, int64_t world, const KnownFlag& known)
      : model_(config.model),
        ranks_(config.parallel),
        train_(config.train),
        schedules_(config.schedules),
        world_(world),
        known_(known) {}

  Problems run() {
    if (!know({"tensor-model-parallel-size"})) return {};
    const bool mesh =
        know({"pipeline-model-parallel-size", "context-parallel-size", "local-ranks"});
    if (mesh) check_world();
    if (mesh && know({"num-distributed-optimizer-instances"})) check_copies(Grid::dense);
    check_tensor_parallel();
    check_sequence_parallel();
    check_context_parallel();
    if (mesh && know({"num-experts", "expert-model-parallel-size", "expert-tensor-parallel-size"}))
      check_experts();
    if (mesh && know({"micro-batch-size", "global-batch-size", "step-batch-size-schedule",
                      "decrease-batch-size-if-needed", "seq-length"}))
      check_batch();
    if (know({"num-layers", "pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank",
              "num-layers-per-virtual-pipeline-stage", "decoder-first-pipeline-num-layers",
              "decoder-last-pipeline-num-layers", "pipeline-model-parallel-layout",
              "pipeline-schedule", "microbatch-group-size-per-virtual-pipeline-stage"}))
      check_pipeline();
    return std::move(problems_);
  }

 private:
  bool know(std::initializer_list<const char*> flags) const {
    return !known_ || std::ranges::all_of(flags, known_);
  }

  void add(const char* flag, std::string text, std::string hint) {
    problems_.push_back({ProblemKind::rule, flag, std::move(text), std::move(hint)});
  }

  void check_world() {
    const int64_t copy = model_ranks(ranks_);
    if (world_ % copy == 0) return;
    add("--tensor-model-parallel-size",
        str_cat("there are ", world_, " ranks, which is not a multiple of TP ", tp(), " x PP ",
                ranks_.pipeline_model_parallel_size, " x CP ", ranks_.context_parallel_size, " = ",
                copy),
        nearest_multiples(world_, copy));
  }

  // `total` things are cut over the tensor-parallel ranks.
  void check_cut(const char* flag, const char* what, int64_t total) {
    if (total % tp() == 0) return;
    std::string sizes;
    for (int64_t size = 1; size <= total; ++size)
      if (total % size == 0 && size <= 4 * tp()) sizes += str_cat(sizes.empty() ? "" : ", ", size);
    add(flag,
        str_cat(what, " ", total, " is not a multiple of --tensor-model-parallel-size ", tp()),
        str_cat(nearest_multiples(total, tp()), "; or TP ", sizes));
  }

  void check_tensor_parallel() {
    if (tp() == 1) return;
    const bool heads = know({"num-attention-heads"});
    if (heads)
      check_cut("--num-attention-heads", "--num-attention-heads", model_.num_attention_heads);
    if (know({"ffn-hidden-size"}) && (model_.ffn_hidden_size || know({"hidden-size"})))
      check_cut("--ffn-hidden-size", "--ffn-hidden-size", model_.ffn_size());
    if (model_.padded_vocab_size && know({"padded-vocab-size"}))
      check_cut("--padded-vocab-size", "--padded-vocab-size", *model_.padded_vocab_size);
    if (heads && !model_.latent.any() && know({"num-query-groups"})) check_query_groups();
  }

  void check_query_groups() {
    const bool head_size =
        know({"kv-channels"}) &&
        (model_.kv_channels ||
         (know({"hidden-size"}) && model_.hidden_size % model_.num_attention_heads == 0));
    const int64_t groups = model_.query_groups();
    if (groups % tp() != 0 && tp() % groups != 0) {
      add("--num-query-groups",
          str_cat("--num-query-groups ", groups, " and --tensor-model-parallel-size ", tp(),
                  ": neither is a multiple of the other"),
          str_cat(nearest_multiples(groups, tp()), ", or a divisor of ", tp()));
    } else if (head_size && groups < tp() && model_.head_dim() % (tp() / groups) != 0) {
      add("--num-query-groups",
          str_cat(tp() / groups, " ranks share each of the ", groups,
                  " key heads, but --kv-channels ", model_.head_dim(), " is not a multiple of ",
                  tp() / groups),
          nearest_multiples(model_.head_dim(), tp() / groups));
    }
  }

  void check_sequence_parallel() {
    if (!ranks_.sequence_parallel) return;
    if (tp() == 1) {
      add("--sequence-parallel",
          "--sequence-parallel cuts the sequence over the tensor-parallel ranks, but "
          "--tensor-model-parallel-size is 1",
          "leave it out, or use --tensor-model-parallel-size 2");
    } else if (know({"seq-length"}) && ranks_.context_parallel_size == 1) {
      check_cut("--seq-length", "with --sequence-parallel: --seq-length", model_.seq_length);
    }
  }

  void check_context_parallel() {
    if (!know({"context-parallel-size"})) return;
    const Problems wrong = context_layout_problems(model_, ranks_, known_);
    problems_.insert(problems_.end(), wrong.begin(), wrong.end());
  }

  void check_experts() {
    const int64_t ep = ranks_.expert_model_parallel_size, etp = expert_tensor_ranks(ranks_);
    if (!model_.moe.any()) {
      if (ep > 1 || ranks_.expert_tensor_parallel_size.value_or(1) > 1)
        add(ep > 1 ? "--expert-model-parallel-size" : "--expert-tensor-parallel-size",
            str_cat("experts are to be cut over ", ep > 1 ? ep : etp,
                    " ranks, but the model has none"),
            "add --num-experts, or leave the flag out");
      return;
    }
    const int64_t experts = *model_.moe.num_experts;
    if (tp() > 1 && !ranks_.sequence_parallel)
      add("--sequence-parallel",
          str_cat("--num-experts with --tensor-model-parallel-size ", tp(),
                  " needs --sequence-parallel: a token is routed by one rank"),
          "add --sequence-parallel");
    if (experts % ep != 0)
      add("--expert-model-parallel-size",
          str_cat("--expert-model-parallel-size ", ep, " does not divide --num-experts ", experts),
          nearest_divisors(experts, ep));
    if (model_.expert_size() % etp != 0)
      add("--expert-tensor-parallel-size",
          str_cat("an expert of width ", model_.expert_size(), " cannot be cut over ", etp,
                  " ranks"),
          nearest_divisors(model_.expert_size(), etp));
    if (model_.moe.moe_shared_expert_intermediate_size &&
        know({"moe-shared-expert-intermediate-size"}))
      check_cut("--moe-shared-expert-intermediate-size", "--moe-shared-expert-intermediate-size",
                *model_.moe.moe_shared_expert_intermediate_size);
    const int64_t stage = world_ / ranks_.pipeline_model_parallel_size;
    if (stage % (ep * etp) != 0)
      add("--expert-model-parallel-size",
          str_cat("a pipeline stage has ", stage, " ranks, which is not a multiple of EP ", ep,
                  " x ETP ", etp, " = ", ep * etp),
          expert_ranks_that_fit(stage, ep, etp));
    else if (ranks_.use_tp_pp_dp_mapping &&
             stage / (ep * etp) != data_parallel_size(ranks_, world_))
      add("--use-tp-pp-dp-mapping",
          "--use-tp-pp-dp-mapping needs as many data-parallel ranks for experts as for dense "
          "layers",
          "leave it out, or choose EP x ETP = TP x CP");
    else if (know({"num-distributed-optimizer-instances"}))
      check_copies(Grid::expert);
  }

  // Each group of data-parallel ranks has all shards.
  void check_copies(Grid grid) {
    const int64_t copies = ranks_.num_distributed_optimizer_instances;
    const bool dense = grid == Grid::dense;
    const int64_t stage = world_ / ranks_.pipeline_model_parallel_size;
    const int64_t data =
        dense ? data_parallel_size(ranks_, world_)
              : stage / (ranks_.expert_model_parallel_size * expert_tensor_ranks(ranks_));
    if (data < 1 || data % copies == 0) return;
    add("--num-distributed-optimizer-instances",
        str_cat("--num-distributed-optimizer-instances ", copies, " does not divide the ", data,
                dense ? " data-parallel ranks" : " ranks that have the same experts"),
        nearest_divisors(data, copies));
  }

  // Which EP would do with the ETP; or which ETP, if none does.
  std::string expert_ranks_that_fit(int64_t stage, int64_t ep, int64_t etp) const {
    if (stage % etp != 0)
      return str_cat("ETP should divide ", stage, ": ",
                     nearest_divisors(std::gcd(stage, model_.expert_size()), etp));
    const int64_t left = stage / etp;
    return str_cat("with ETP ", etp, " EP should divide ", left, ": ",
                   nearest_divisors(std::gcd(left, *model_.moe.num_experts), ep));
  }

  void check_batch() {
    const int64_t dp = data_parallel_size(ranks_, world_), micro = train_.micro_batch_size;
    if (dp < 1 || micro < 1) return;  // told already
    const std::string& schedule = train_.step_batch_size_schedule;
    const char* flag = schedule.empty() ? "--global-batch-size" : "--step-batch-size-schedule";
    if (!schedule.empty()) {
      const Problems wrong = BatchSchedule::problems(schedule, model_.seq_length);
      problems_.insert(problems_.end(), wrong.begin(), wrong.end());
      if (!wrong.empty()) return;
    }
    for (int64_t size : train_.batch_schedule(model_.seq_length, dp).sizes()) {
      if (size > 0 && size % (micro * dp) == 0) {
        micro_batches_.insert(size / (micro * dp));
        continue;
      }
      const int64_t given = size > 0 ? size : *train_.global_batch_size;  // decreased to nothing
      add(flag,
          str_cat(flag, schedule.empty() ? " " : ": size ", given,
                  size > 0 ? " is not a multiple of" : " cannot be decreased to a multiple of",
                  " --micro-batch-size ", micro, " x data parallel ", dp, " = ", micro * dp),
          nearest_multiples(given, micro * dp));
    }
  }

  void check_pipeline() {
    const PlacementConfig placement = placement_config(model_, ranks_);
    const Problems wrong = placement_problems(placement);
    problems_.insert(problems_.end(), wrong.begin(), wrong.end());
    if (!wrong.empty()) return;
    const int chunks = place_layers(placement).chunks;
    const ScheduleKind* kind = find_entry(schedules_, ranks_.pipeline_schedule);
    if (kind == nullptr || ranks_.pipeline_model_parallel_size == 1) return;
    if (chunks > 1 && !kind->several_chunks)
      add("--pipeline-schedule",
          str_cat("--pipeline-schedule ", kind->name, " has one chunk a pipeline rank, not ",
                  chunks),
          "leave out the virtual stages, or use --pipeline-schedule 1f1b");
    else if (kind->problems)
      check_schedule(*kind, chunks);
  }

  void check_schedule(const ScheduleKind& kind, int chunks) {
    for (int64_t micro_batches : micro_batches_) {
      const Problems wrong_here = kind.problems(
          {.stages = int(ranks_.pipeline_model_parallel_size),
           .chunks = chunks,
           .micro_batches = int(micro_batches),
           .group_size = int(ranks_.microbatch_group_size_per_virtual_pipeline_stage.value_or(0))});
      for (const Problem& problem : wrong_here)
        if (std::ranges::find(problems_, problem.text, &Problem::text) == problems_.end())
          problems_.push_back(problem);
    }
  }

  int64_t tp() const { return ranks_.tensor_model_parallel_size; }

  const TransformerConfig& model_;
  const ParallelConfig& ranks_;
  const TrainConfig& train_;
  const std::vector<ScheduleKind>& schedules_;
  int64_t world_;
  const KnownFlag& known_;
  std::set<int64_t> micro_batches_;  // a rank's, of the batch sizes that fit
  Problems problems_;
};

}  // namespace

Problems layout_problems(const LayoutConfig& config, int64_t world, const KnownFlag& known) {
  return Checker(config, world, known).run();
}

}  // namespace phx
