#include "phalanx/transformer/moe.h"

#include <cmath>

#include "phalanx/ops/activation.h"
#include "phalanx/ops/add.h"
#include "phalanx/ops/dropout.h"
#include "phalanx/parallel/context/sequence_cut.h"
#include "phalanx/transformer/mlp.h"
#include "phalanx/transformer/normed_linear.h"

namespace phx {

namespace {

ExpertActivation activation_of(const TransformerConfig& config) {
  switch (config.activation()) {
    case MlpActivation::swiglu:
      return {.kind = Activation::silu, .gated = true};
    case MlpActivation::geglu_tanh:
      return {.kind = Activation::gelu_tanh, .gated = true};
    case MlpActivation::gelu:
      return {.kind = Activation::gelu, .gated = false};
    case MlpActivation::gelu_tanh:
      return {.kind = Activation::gelu_tanh, .gated = false};
    case MlpActivation::squared_relu:
      return {.kind = Activation::relu_squared, .gated = false};
  }
  return {};
}

ParameterAxes expert_axes() {
  return {.grid = Grid::expert, .cut = {Axis::tp, Axis::ep, Axis::pp}};
}

int64_t cut_evenly(const char* what, int64_t total, int ranks) {
  PHX_CHECK(total % ranks == 0, total, " ", what, " cannot be cut over ", ranks, " ranks");
  return total / ranks;
}

// fc1 of this rank's experts: of each expert the gate's rows, then the up projection's, each cut
// over the experts' tensor-parallel ranks.
ParameterSpec fc1_spec(const TransformerConfig& config, const ExpertParallel& ranks) {
  const int64_t h = config.hidden_size, f = config.expert_size(), halves = config.gated() ? 2 : 1;
  const int64_t experts = *config.moe.num_experts;
  const int64_t local = cut_evenly("experts", experts, ranks.ep);
  const int64_t width = cut_evenly("channels of an expert", f, ranks.tp);
  std::vector<RowPiece> rows;
  for (int64_t e = 0; e < local; ++e)
    for (int64_t half = 0; half < halves; ++half)
      rows.push_back({.global_row = ((ranks.ep_rank() * local + e) * halves + half) * f +
                                    ranks.tp_rank() * width,
                      .local_row = (e * halves + half) * width,
                      .count = width});
  return {.global_shape = {experts * halves * f, h},
          .local_shape = {local * halves * width, h},
          .pieces = pieces_of(rows, h),
          .init = Init::normal(config.init_method_std),
          .axes = expert_axes()};
}

// fc2: rows are the experts' outputs, columns are cut.
ParameterSpec fc2_spec(const TransformerConfig& config, const ExpertParallel& ranks) {
  const int64_t h = config.hidden_size, f = config.expert_size(), e = *config.moe.num_experts;
  const int64_t local = e / ranks.ep, width = f / ranks.tp;
  return {.global_shape = {e * h, f},
          .local_shape = {local * h, width},
          .pieces = {{.rows = local * h,
                      .cols = width,
                      .global_row = ranks.ep_rank() * local * h,
                      .global_col = ranks.tp_rank() * width}},
          .init = Init::normal(config.residual_std()),
          .axes = expert_axes()};
}

ParameterSpec row_on_every_rank(int64_t rows, int64_t width, Init init, const TensorParallel& tp) {
  ParameterSpec spec = whole({rows, width}, init);
  spec.axes = axes_in_sequence(tp);
  return spec;
}

RouterOptions router_options(const MoeConfig& moe) {
  RouterOptions options{.topk = moe.moe_router_topk,
                        .groups = moe.moe_router_num_groups.value_or(0),
                        .group_topk = moe.moe_router_group_topk.value_or(0),
                        .group_best = moe.moe_router_group_best.value_or(0),
                        .scaling = moe.moe_router_topk_scaling_factor.value_or(1.0)};
  if (options.group_topk == options.groups) options.groups = 0;  // all groups: no limit
  if (moe.moe_router_score_function == RouterScoreFunction::sigmoid)
    options.scores = RouterScores::sigmoid;
  else if (moe.moe_router_pre_softmax)
    options.scores = RouterScores::softmax_before;
  return options;
}

}  // namespace

Experts::Experts(const TransformerConfig& config, const ExpertParallel& ranks)
    : activation_(activation_of(config)),
      fc1_(fc1_spec(config, ranks)),
      fc2_(fc2_spec(config, ranks)) {
  add_parameter("linear_fc1.weight", fc1_);
  add_parameter("linear_fc2.weight", fc2_);
}

Tensor Experts::forward(const ExpertInput& input, bool remake) {                    // [r, h]
  const Tensor hidden = grouped_linear(input.rows, fc1_.acquire(), input.offsets);  // [r, f or 2f]
  const Tensor active = weighted_activation(hidden, input.weights, input.offsets, activation_);
  if (!remake) return grouped_linear(active, fc2_.acquire(), input.offsets);  // [r, h]
  const auto again = [hidden = hidden.detach(), weights = input.weights.detach(),
                      offsets = input.offsets, activation = activation_] {
    GradMode off(hidden.runtime(), false);
    return weighted_activation(hidden, weights, offsets, activation);
  };
  return grouped_linear(active, fc2_.acquire(), input.offsets, again);
}

SharedExpert::SharedExpert(const TransformerConfig& config, const TensorParallel& tp)
    : config_(config),
      fc1_(config.hidden_size,
           cut_rows(std::vector<int64_t>(config.gated() ? 2 : 1,
                                         *config.moe.moe_shared_expert_intermediate_size),
                    tp),
           {.bias = false, .init = Init::normal(config.init_method_std)}, tp),
      fc2_(*config.moe.moe_shared_expert_intermediate_size, config.hidden_size,
           {.bias = false, .init = Init::normal(config.residual_std())}, tp) {
  add_child("linear_fc1", fc1_);
  add_child("linear_fc2", fc2_);
  if (!config.moe.moe_shared_expert_gate) return;
  gate_.emplace(row_on_every_rank(1, config.hidden_size, Init::normal(config.init_method_std), tp));
  add_parameter("gate_weight", *gate_);
}

Tensor SharedExpert::forward(const Tensor& x, bool remake) {  // [s/tp, b, h]
  const Tensor hidden = fc1_.forward(x);                      // [s, b, f/tp or 2f/tp]
  const auto activate = [config = &config_](const Tensor& in) {
    return mlp_activation(*config, in);
  };
  Remake again;
  if (remake)
    again = [activate, hidden = hidden.detach()] {
      GradMode off(hidden.runtime(), false);
      return activate(hidden);
    };
  const Tensor y = fc2_.multiply(activate(hidden), again);  // [s/tp, b, h]
  if (!gate_) return y;
  const int64_t t = x.numel() / x.dim(-1);
  const Tensor logits = router_logits(x.reshape({t, x.dim(-1)}), gate_->acquire());  // [t, 1]
  const Routing gate =
      route(logits, {}, {.topk = 1, .scores = RouterScores::sigmoid}, {}, {});  // its sigmoid
  return scale_rows(y.reshape({t, y.dim(-1)}), gate.probs.reshape({t})).reshape(y.shape());
}

MoeLayer::MoeLayer(const LayerContext& layer)
    : config_(layer.config),
      tp_(layer.ranks.tp),
      ranks_(layer.ranks.experts),
      layer_(layer.layer),
      dropout_site_("decoder.layers." + std::to_string(layer.layer) + ".mlp.dropout"),
      norm_(norm_spec(config_, config_.hidden_size, axes_in_sequence(tp_))),
      router_weight_(row_on_every_rank(*config_.moe.num_experts, config_.hidden_size,
                                       Init::normal(config_.init_method_std), tp_)),
      experts_(config_, ranks_) {
  add_child("pre_mlp_layernorm", norm_);
  add_child("mlp", mlp_);
  router_.add_parameter("weight", router_weight_);
  const auto buffer = [&](std::optional<Parameter>& made, const char* name) {
    made.emplace(whole({*config_.moe.num_experts}, Init::constant(0)));
    router_.add_buffer(name, *made);
  };
  if (config_.moe.moe_router_enable_expert_bias) buffer(bias_, "expert_bias");
  if (config_.moe.coefficient("global_aux_loss") != 0) buffer(loads_, "global_tokens_per_expert");
  mlp_.add_child("router", router_);
  mlp_.add_child("experts", experts_);
  if (!config_.moe.moe_shared_expert_intermediate_size) return;
  shared_.emplace(config_, tp_);
  mlp_.add_child("shared_experts", *shared_);
}

kernels::RouterTally MoeLayer::tally_in(const Tensor& all) const {  // [layers, width]
  return {.row = all.rows(layer_, 1).reshape({all.dim(1)}), .experts = *config_.moe.num_experts};
}

void MoeLayer::end_step(const StepEnd& step) {
  if (!bias_ && !loads_) return;
  Tensor bias = bias_ ? bias_->value() : Tensor(), loads = loads_ ? loads_->value() : Tensor();
  kernels::end_router_step(tally_in(step.tally), step.skip, config_.moe.moe_router_bias_update_rate,
                           bias, loads);
}

Routing MoeLayer::choose(const Tensor& tokens, const Tensor& x, const ForwardContext& context) {
  const int64_t t = tokens.dim(0), e = *config_.moe.num_experts;
  const RouterOptions options = router_options(config_.moe);
  const Tensor logits = router_logits(
      tokens, router_weight_.acquire(),
      config_.moe.moe_router_dtype ? RouterGradients::wide : RouterGradients::as_input);  // [t, e]
  const bool forced = config_.moe.moe_router_force_load_balancing;
  // A rehearsal routes as well, for its kernels.
  const Routing routing = forced ? Routing{} : by_router(logits, x.dim(1), context);
  if (!forced && !context.rehearsal) return routing;
  Tensor indices = empty({t, options.topk}, DType::i32, tokens.device());
  const int64_t b = x.dim(1), rows = x.dim(0);  // [s/tp, b, h]
  const int64_t skipped = tp_.cuts_sequence() ? tp_.rank() * rows : 0;
  const int64_t s = rows * (tp_.cuts_sequence() ? tp_.size() : 1) * context.cut.ranks;
  for (const RowSpan& span : context.cut.spans(s, skipped, rows)) {
    Tensor of_span = indices.rows((span.local - skipped) * b, span.count * b);
    kernels::route_evenly(span.global * b, e, of_span);
  }
  return route_to(logits, indices, options);
}

Routing MoeLayer::by_router(const Tensor& logits, int64_t samples,
                            const ForwardContext& context) {  // [t, e]
  const MoeConfig& moe = config_.moe;
  const int64_t t = logits.dim(0), e = logits.dim(1);
  const RouterOptions options = router_options(moe);
  // Without memory there would silently be no bias.
  PHX_ASSERT(!bias_ || bias_->value().defined(), "layer ", layer_, " has no memory for its biases");
  const Routing routing =
      route(logits, bias_ ? bias_->value() : Tensor(), options,
            {.batch = moe.coefficient("aux_loss"),
             .sample = moe.coefficient("seq_aux_loss"),
             .past = moe.coefficient("global_aux_loss"),
             .z = moe.moe_z_loss_coeff.value_or(0)},
            {.samples = samples,
             .tokens = ranks_.tokens,
             .scale = context.mean_scale,
             .loads = loads_ ? loads_->value() : Tensor(),
             .tally = context.router_tally.defined() ? tally_in(context.router_tally).balance()
                                                     : Tensor()});
  if (!moe.moe_expert_capacity_factor) return routing;
  const int64_t all = t * (ranks_.tokens == nullptr ? 1 : ranks_.tokens->size());
  const auto rows =
      int64_t(std::ceil(double(all * options.topk) / double(e) * *moe.moe_expert_capacity_factor));
  if (rows >= all) return routing;  // an expert gets a token once at most
  Capacity capacity{
      .experts = e, .rows = rows, .by_weight = moe.moe_token_drop_policy == TokenDropPolicy::probs};
  if (const int64_t ranks = context.cut.ranks; ranks > 1) {
    capacity.in_sequence = [ranks](const Tensor& x) { return in_sequence_order(x, ranks); };
    capacity.by_rank = [ranks](const Tensor& x) { return in_rank_order(x, ranks); };
  }
  return within_capacity(routing, capacity, ranks_.tokens);
}

Tensor MoeLayer::routed(const Tensor& normed, const LayerCall& call) {  // [s/tp, b, h]
  const MoeConfig& moe = config_.moe;
  const int64_t h = config_.hidden_size;
  const Tensor tokens = normed.reshape({normed.numel() / h, h});  // [t, h]
  const Routing routing = choose(tokens, normed, call.context);
  // What is recomputed runs twice, and is counted the second time.
  if (const Tensor& tally = call.context.router_tally;
      tally.defined() && tokens.runtime().grad_enabled())
    kernels::count_choices(routing.indices, *moe.num_experts, tally_in(tally).choices());
  const ExpertInput input =
      dispatch(tokens, routing, ranks_,
               {.kind = moe.moe_token_dispatcher_type == TokenDispatcherType::allgather
                            ? Dispatcher::all_gather
                            : Dispatcher::all_to_all,
                .experts = *moe.num_experts,
                .room = moe.moe_expert_rank_capacity_factor});
  const Tensor rows = experts_.forward(input, call.policy.expert_activation);  // [r, h]
  return input.combine(rows).reshape(normed.shape());
}

Tensor MoeLayer::add_to(const Tensor& residual, const Tensor& x,
                        const LayerCall& call) {  // [s/tp, b, h] both
  const Tensor normed = norm_.forward(x);         // [s/tp, b, h]
  Tensor branch = routed(normed, call);           // [s/tp, b, h]
  if (shared_) branch = add(branch, shared_->forward(normed, call.policy.shared_expert));
  const double p = call.context.training ? config_.hidden_dropout : 0.0;
  return bias_dropout_add(residual, branch, Tensor(), p,
                          random_site(dropout_site_, call.context, tp_, residual.dim(0)));
}

}  // namespace phx
