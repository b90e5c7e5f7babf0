// Which experts tokens go to, as a differentiable function of the logits, with the losses that
// keep experts evenly used.
#pragma once

#include <functional>

#include "phalanx/comm/communicator.h"
#include "phalanx/kernels/router.h"

namespace phx {

using kernels::RouterOptions;
using kernels::RouterScores;

// x [t, h], w [e, h] -> [t, e] in acc_dtype: the products are exact enough that layouts and
// recomputation choose alike. `wide`: the gradients' products are formed in acc_dtype as well;
// otherwise the logits' gradient is rounded to x's type before.
enum class RouterGradients : uint8_t { as_input, wide };
Tensor router_logits(const Tensor& x, const Tensor& w,
                     RouterGradients gradients = RouterGradients::as_input);

// Coefficients of the losses, as the user gives them. Each is a mean over the tokens of one
// micro-batch on all ranks that share it, and enters the run's loss with the micro-batch's share of
// the tokens that count.
struct BalanceLosses {
  double batch = 0;   // Megatron's aux_loss
  double sample = 0;  // seq_aux_loss
  double past = 0;    // global_aux_loss, by the loads of the last step
  double z = 0;       // z-loss
  bool any() const { return batch != 0 || sample != 0 || past != 0 || z != 0; }
};

struct BalanceContext {
  int64_t samples = 1;             // b: tokens are rows of [s, b]
  Communicator* tokens = nullptr;  // ranks that share the micro-batch's tokens; null: one
  Tensor scale = {};               // [1] acc: loss_scale n_k / N; undefined: no gradients
  Tensor loads = {};               // [e] acc: choices of each expert in the last step; 0: none
  Tensor tally = {};  // RouterTally::balance(), to which counts and losses are added, or undefined
};

struct Routing {
  Tensor indices;  // i32 [t, k], the best first
  Tensor probs;    // [t, k] in acc_dtype
};

// logits [t, e]; bias [e] or undefined.
Routing route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
              const BalanceLosses& losses, const BalanceContext& context);
// The same with given choices i32 [t, k].
Routing route_to(const Tensor& logits, const Tensor& indices, const RouterOptions& options);

// Each expert takes `capacity` of the choices of the micro-batch; what it has no room for is
// dropped: index -1, weight 0. `ranks`: those that share the micro-batch's tokens.
struct Capacity {
  int64_t experts = 0, rows = 0;
  bool by_weight = true;  // else by position
  // Rows of all ranks, as the ranks have them, into the order of the sequence, and back. Not set:
  // it is the same order.
  using Reorder = std::function<Tensor(const Tensor&)>;
  Reorder in_sequence = {}, by_rank = {};
};
Routing within_capacity(const Routing& routing, const Capacity& capacity, Communicator* ranks);

}  // namespace phx
