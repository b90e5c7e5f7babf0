#include "phalanx/verify/shrink.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/verify/shrink_context.h"
#include "phalanx/verify/shrink_layers.h"

namespace phx {

namespace {

struct LayoutAxes {
  int64_t tp = 1, cp = 1, pp = 1, dp = 1;
  int64_t copies = 1;  // of shards, among the dp ranks
  int64_t ranks() const { return tp * cp * pp * dp; }
};

LayoutAxes axes_of(const ParallelConfig& parallel, int64_t world) {
  return {.tp = parallel.tensor_model_parallel_size,
          .cp = parallel.context_parallel_size,
          .pp = parallel.pipeline_model_parallel_size,
          .dp = data_parallel_size(parallel, world),
          .copies = parallel.num_distributed_optimizer_instances};
}

// Two data-parallel ranks show what more would; two groups of two where each has all shards. A
// pipeline of three stages has one that is neither first nor
// last: that comes before more tensor-parallel ranks, of which four share key groups by twos, and
// before more context-parallel ones, of which four have neighbours that keys do not come from.
LayoutAxes shrink_axes(const LayoutAxes& all, int64_t most_ranks) {
  const int64_t most_dp = all.copies > 1 && all.dp > all.copies ? 4 : 2;
  const auto worth = [&](const LayoutAxes& a) {
    return std::tuple(std::min<int64_t>(a.dp, 2), std::min<int64_t>(a.pp, 3), a.copies,
                      std::min<int64_t>(a.tp, 2), std::min<int64_t>(a.cp, 4),
                      std::min<int64_t>(a.tp, 4), std::min<int64_t>(a.pp, 4), -a.ranks());
  };
  std::optional<LayoutAxes> best;
  for (int64_t tp = std::min<int64_t>(all.tp, 2); tp <= std::min(all.tp, most_ranks); ++tp)
    for (int64_t pp = std::min<int64_t>(all.pp, 2); pp <= std::min<int64_t>(all.pp, 4); ++pp)
      for (int64_t dp = 1; dp <= std::min(all.dp, most_dp); ++dp)
        for (int64_t cp = std::min<int64_t>(all.cp, 2); cp <= std::min(all.cp, most_ranks); ++cp) {
          if (dp == 3) continue;
          const LayoutAxes axes{tp, cp, pp, dp, dp == 4 ? 2 : 1};
          // What is cut over some ranks can be cut over a divisor of them.
          if (all.tp % tp != 0 || all.cp % cp != 0 || axes.ranks() > most_ranks) continue;
          if (!best || worth(axes) > worth(*best)) best = axes;
        }
  PHX_CHECK(best.has_value(), "TP ", all.tp, " x CP ", all.cp, " x PP ", all.pp,
            " has no smaller form of at most ", most_ranks, " ranks");
  return *best;
}

// Heads are cut over tensor-parallel ranks, and where context-parallel ranks exchange heads for
// positions over those, too.
struct HeadRanks {
  int64_t tp = 1, exchanging = 1;
  int64_t all() const { return tp * exchanging; }
};

// Query heads and key groups: ranks that have several groups, one, or share one still do.
void shrink_heads(TransformerConfig& model, const HeadRanks& before, const HeadRanks& ranks) {
  const int64_t old_tp = before.all(), tp = ranks.all();
  const int64_t heads = model.num_attention_heads, groups = model.query_groups();
  int64_t small_groups = 1;
  if (groups >= old_tp) {
    small_groups = tp * std::min<int64_t>(groups / old_tp, 2);
    model.num_attention_heads = small_groups * std::min<int64_t>(heads / groups, 2);
  } else {
    for (int64_t n = 1; n <= std::min(groups, tp / 2); ++n)
      if (tp % n == 0) small_groups = n;
    model.num_attention_heads = tp * std::min<int64_t>(heads / old_tp, 2);
  }
  model.num_query_groups = small_groups;
}

// The least from 8 on that ranks can share and that leaves two channels to rotate.
int64_t small_head_dim(TransformerConfig model, int64_t tp) {
  const int64_t sharers = std::max<int64_t>(tp / model.query_groups(), 1);
  for (int64_t d = 8;; d += 2) {
    model.kv_channels = d;
    if (d % sharers == 0 && (model.rotary_percent == 0 || model.rotary_dim() >= 2)) return d;
  }
}

// Head sizes that differ still do, and latent vectors stay narrower than what they stand for.
void shrink_latents(TransformerConfig& model, const HeadRanks& before, const HeadRanks& ranks) {
  LatentConfig& latent = model.latent;
  model.num_attention_heads =
      ranks.all() * std::min<int64_t>(model.num_attention_heads / before.all(), 2);
  const bool as_wide = latent.v_head_dim == latent.query_channels();
  latent.qk_head_dim = 6;
  latent.qk_pos_emb_head_dim = 4;
  latent.v_head_dim = as_wide ? 10 : 8;
  latent.kv_lora_rank = 12;
  if (latent.q_lora_rank) latent.q_lora_rank = 14;
  model.hidden_size = 24;
  model.ffn_hidden_size = round_up(model.hidden_size + 8, ranks.tp);
}

void shrink_widths(TransformerConfig& model, const HeadRanks& before, const HeadRanks& ranks) {
  if (model.latent.any()) return shrink_latents(model, before, ranks);
  const bool heads_fill = model.num_attention_heads * model.head_dim() == model.hidden_size;
  shrink_heads(model, before, ranks);
  model.kv_channels = small_head_dim(model, ranks.tp);
  const int64_t all_heads = model.num_attention_heads * *model.kv_channels;
  model.hidden_size = heads_fill ? all_heads : all_heads + 8;
  model.ffn_hidden_size = round_up(model.hidden_size + 8, ranks.tp);
}

// The ranks of experts: as many as the dense layers' tensor parallelism has, one, fewer or more.
void shrink_expert_ranks(ParallelConfig& ranks, const LayoutAxes& old_axes, LayoutAxes& axes,
                         int64_t most_ranks) {
  auto& etp = ranks.expert_tensor_parallel_size;
  if (etp && *etp == old_axes.tp)
    etp = axes.tp;
  else if (etp && *etp > old_axes.tp)
    etp = 2 * axes.tp;
  else if (etp && *etp > 1)
    etp = std::min<int64_t>(axes.tp, 2);
  int64_t& ep = ranks.expert_model_parallel_size;
  const int64_t small_etp = etp.value_or(axes.tp);
  if (ranks.use_tp_pp_dp_mapping) {  // experts and dense layers have as many data-parallel ranks
    ep = std::max<int64_t>(axes.tp * axes.cp / small_etp, 1);
    return;
  }
  ep = std::min<int64_t>(ep, 2);
  // Two copies of the model may be too few ranks for both.
  const int64_t tokens = axes.tp * axes.cp;  // ranks that share those of a sample
  const auto fits = [&](int64_t dp) { return tokens * dp % (ep * small_etp) == 0; };
  for (int64_t dp = axes.dp; dp <= old_axes.dp && tokens * axes.pp * dp <= most_ranks; ++dp)
    if (fits(dp)) {
      axes.dp = dp;
      return;
    }
  if (etp) etp = std::min(*etp, axes.tp);
  ep = std::gcd(ep, tokens * axes.dp / etp.value_or(axes.tp));
}

// Experts that are shared by ranks, or cut, still are; a token still leaves some out.
void shrink_experts(RunConfig& config, const LayoutAxes& old_axes, LayoutAxes& axes,
                    int64_t most_ranks) {
  MoeConfig& moe = config.model.moe;
  ParallelConfig& ranks = config.parallel;
  if (!moe.any()) return;
  shrink_expert_ranks(ranks, old_axes, axes, most_ranks);
  const auto& etp = ranks.expert_tensor_parallel_size;
  const int64_t ep = ranks.expert_model_parallel_size;
  // Few tokens are spread less evenly than many: room for all of them.
  if (auto& room = moe.moe_expert_rank_capacity_factor) room = std::max(*room, double(ep));
  const bool grouped = moe.moe_router_num_groups.has_value();
  const bool one = moe.moe_router_topk == 1;
  moe.num_experts = grouped ? 8 : round_up(4, ep);
  if (grouped) {
    moe.moe_router_num_groups = 4;
    moe.moe_router_group_topk = one ? 1 : 2;
    moe.moe_router_topk = one ? 1 : 4;
  } else {
    moe.moe_router_topk = std::min<int64_t>(moe.moe_router_topk, 3);
  }
  moe.moe_ffn_hidden_size = round_up(12, etp.value_or(axes.tp));
  if (moe.moe_shared_expert_intermediate_size)
    moe.moe_shared_expert_intermediate_size = round_up(12, axes.tp);
}

// Groups of data-parallel ranks that can each have all shards.
int64_t copies_of_shards(const RunConfig& config, const LayoutAxes& axes) {
  const int64_t experts =
      config.model.moe.any()
          ? axes.tp * axes.cp * axes.dp /
                (config.parallel.expert_model_parallel_size * expert_tensor_ranks(config.parallel))
          : axes.dp;
  return axes.dp % axes.copies == 0 && experts % axes.copies == 0 ? axes.copies : 1;
}

void shrink_sequence(TransformerConfig& model, const LayoutAxes& axes) {
  const int64_t length = model.seq_length;
  // Two chunks of several tokens for each rank that shares it.
  model.seq_length =
      axes.cp == 1 ? round_up(8, axes.tp) : round_up(16, axes.cp * std::lcm<int64_t>(2, axes.tp));
  const int64_t spare = model.max_position_embeddings > length ? 4 : 0;
  model.max_position_embeddings = model.seq_length + spare;
  // A window that leaves something out still does.
  if (model.window_size && model.window_size->left >= 0)
    model.window_size->left = model.window_size->left < length - 1 ? 2 : model.seq_length;
}

void shrink_vocabulary(TransformerConfig& model, int64_t old_tp) {
  const bool known = model.vocab_size || model.padded_vocab_size;
  const bool padded =
      !known || (model.vocab_size && model.padded_vocab(old_tp) > *model.vocab_size);
  model.padded_vocab_size = {};
  model.make_vocab_size_divisible_by = 8;
  model.vocab_size = padded ? 53 : 64;
}

// Micro-batches a step that fill the small pipeline as the large one was filled: not quite, once,
// or several times; interleaved they come in groups, of which the last may be incomplete.
void shrink_batch(RunConfig& config, const Layout& before, int64_t old_micro_batches,
                  const LayoutAxes& axes) {
  const int64_t m = old_micro_batches, stages = before.placement.stages;
  int64_t small = std::min(m, axes.pp + 2);
  if (before.placement.chunks > 1) {
    auto& group = config.parallel.microbatch_group_size_per_virtual_pipeline_stage;
    const int64_t old_group = group.value_or(stages);
    const int64_t size = old_group == stages ? axes.pp : axes.pp + 1;
    if (group) group = size;
    small = m == old_group ? size : m % old_group == 0 ? 2 * size : size + axes.pp;
  } else if (m < stages) {
    small = std::clamp<int64_t>(m, 1, axes.pp - 1);
  }
  // Two steps have one size.
  config.train.step_batch_size_schedule = {};
  config.train.decrease_batch_size_if_needed = false;
  config.train.micro_batch_size = std::min<int64_t>(config.train.micro_batch_size, 2);
  config.train.global_batch_size = config.train.micro_batch_size * small * axes.dp;
}

void prove_in_doubles(RunConfig& config) {
  config.train.fp64 = true;
  config.train.bf16 = config.train.fp16 = false;
  config.train.device = DeviceChoice::cpu;
  config.parallel.grad_reduce_in_bf16 = false;
  config.optim.main_grads_dtype = StateDType::fp32;  // as wide as the weights, that is
  config.optim.exp_avg_dtype = config.optim.exp_avg_sq_dtype = StateDType::fp32;
  config.parallel.local_ranks = {};
  config.data = DataConfig{};
  config.data.mock_data = true;
  // Several buckets, as a large model has.
  if (config.parallel.overlap_grad_reduce) config.parallel.ddp_bucket_size = 2000;
  // Where a gradient is zero but for its rounding, the update should be, too.
  config.optim.adam_eps = std::max(config.optim.adam_eps, 1e-6);
}

std::vector<std::string> changes_between(const RunConfig& before, int64_t world_before,
                                         const RunConfig& after, int64_t world) {
  std::vector<std::string> changes;
  const auto note = [&](const char* what, const auto& a, const auto& b) {
    if (a != b) changes.push_back(str_cat(what, " ", a, " -> ", b));
  };
  const LayoutAxes a = axes_of(before.parallel, world_before), b = axes_of(after.parallel, world);
  note("TP", a.tp, b.tp);
  note("CP", a.cp, b.cp);
  note("PP", a.pp, b.pp);
  note("DP", a.dp, b.dp);
  note("groups with all shards", a.copies, b.copies);
  const TransformerConfig &x = before.model, &y = after.model;
  note("layers", x.num_layers, y.num_layers);
  note("--cp-comm-type", ways_of_layers(before.parallel), ways_of_layers(after.parallel));
  note("chunks a stage", make_layout(before.layout(), world_before).placement.chunks,
       make_layout(after.layout(), world).placement.chunks);
  if (!before.parallel.pipeline_model_parallel_layout.empty())
    note("layout", before.parallel.pipeline_model_parallel_layout,
         after.parallel.pipeline_model_parallel_layout);
  note("hidden", x.hidden_size, y.hidden_size);
  note("heads", x.num_attention_heads, y.num_attention_heads);
  if (x.group_query_attention) note("query groups", x.query_groups(), y.query_groups());
  note("head size", x.head_dim(), y.head_dim());
  if (x.latent.any()) {
    note("value head size", x.value_dim(), y.value_dim());
    note("latent width", x.latent.kv_lora_rank, y.latent.kv_lora_rank);
    if (x.latent.q_lora_rank)
      note("latent width of queries", *x.latent.q_lora_rank, *y.latent.q_lora_rank);
  }
  note("ffn", x.ffn_size(), y.ffn_size());
  if (x.moe.any()) {
    note("EP", before.parallel.expert_model_parallel_size,
         after.parallel.expert_model_parallel_size);
    note("ETP", expert_tensor_ranks(before.parallel), expert_tensor_ranks(after.parallel));
    note("experts", *x.moe.num_experts, *y.moe.num_experts);
    note("experts a token", x.moe.moe_router_topk, y.moe.moe_router_topk);
    note("expert ffn", x.expert_size(), y.expert_size());
    if (x.moe.moe_expert_rank_capacity_factor)
      note("room for rows", *x.moe.moe_expert_rank_capacity_factor,
           *y.moe.moe_expert_rank_capacity_factor);
  }
  note("sequence", x.seq_length, y.seq_length);
  if (x.window_size) note("window", x.window_size->left, y.window_size->left);
  if (x.vocab_size) note("vocabulary", *x.vocab_size, *y.vocab_size);
  note("micro-batch", before.train.micro_batch_size, after.train.micro_batch_size);
  note("micro-batches a step and rank", before.train.num_micro_batches(a.dp),
       after.train.num_micro_batches(b.dp));
  if (!before.train.step_batch_size_schedule.empty())
    note("batch", before.train.step_batch_size_schedule, str_cat(*after.train.global_batch_size));
  note("Adam's epsilon", before.optim.adam_eps, after.optim.adam_eps);
  return changes;
}

}  // namespace

SmallRun shrink(const RunConfig& config, int64_t world, int64_t most_ranks) {
  const Layout before = make_layout(config.layout(), world);
  const LayoutAxes old_axes = axes_of(config.parallel, world);
  LayoutAxes axes = shrink_axes(old_axes, most_ranks);
  SmallRun run{.config = config, .world = 1, .changes = {}};
  RunConfig& small = run.config;
  small.parallel.tensor_model_parallel_size = axes.tp;
  small.parallel.pipeline_model_parallel_size = axes.pp;
  shrink_context_ranks(small.parallel, axes.cp);
  shrink_widths(small.model, {old_axes.tp, ranks_that_exchange_heads(config.parallel)},
                {axes.tp, ranks_that_exchange_heads(small.parallel)});
  shrink_experts(small, old_axes, axes, most_ranks);
  small.parallel.num_distributed_optimizer_instances = copies_of_shards(small, axes);
  run.world = int(axes.ranks());
  shrink_sequence(small.model, axes);
  shrink_vocabulary(small.model, old_axes.tp);
  shrink_layers(small, before.placement, int(axes.pp));
  share_out_context_comms(small.parallel, small.model.num_layers);
  shrink_batch(small, before, config.train.num_micro_batches(old_axes.dp), axes);
  prove_in_doubles(small);
  run.changes = changes_between(config, world, small, run.world);
  return run;
}

SmallRun shrink_for_resume(const RunConfig& config, int64_t world, int64_t most_ranks) {
  constexpr double kScale = 0x1p16;
  SmallRun run = shrink(config, world, most_ranks);
  RunConfig& small = run.config;
  small.train.fp64 = config.train.fp64;
  small.train.bf16 = config.train.bf16;
  small.train.fp16 = config.train.fp16;
  small.parallel.grad_reduce_in_bf16 = config.parallel.grad_reduce_in_bf16;
  small.optim.main_grads_dtype = config.optim.main_grads_dtype;
  small.optim.exp_avg_dtype = config.optim.exp_avg_dtype;
  small.optim.exp_avg_sq_dtype = config.optim.exp_avg_sq_dtype;
  if (config.train.fp16 && config.optim.dynamic_loss_scale() &&
      config.optim.initial_loss_scale > kScale) {
    small.optim.initial_loss_scale = kScale;
    run.changes.push_back(str_cat("loss scale ", config.optim.initial_loss_scale, " -> ", kScale));
  }
  return run;
}

}  // namespace phx
