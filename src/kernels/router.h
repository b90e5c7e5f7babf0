// Which experts a token goes to, with which weight, and how evenly.
//
// Scores and weights of a token with logits l [e], k experts a token:
//   softmax_after    the k largest logits; softmax over them
//   softmax_before   the k largest of softmax(l), as they are
//   sigmoid          s = sigmoid(l); the k largest of s + bias; s over their sum (k = 1: s itself)
// each times `scaling`. With groups, experts are `groups` consecutive blocks; a block counts as the
// sum of its best group_best choices, and experts outside of the best group_topk blocks cannot be
// chosen. Equal scores: the expert with the lower number.
//
// All arithmetic is in acc_dtype of the model, which the logits have.
#pragma once

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

enum class RouterScores : uint8_t { softmax_after, softmax_before, sigmoid };

struct RouterOptions {
  int64_t topk = 2;
  RouterScores scores = RouterScores::softmax_after;
  int64_t groups = 0, group_topk = 0;  // 0: none
  int64_t group_best = 0;              // 0: topk / group_topk
  double scaling = 1.0;

  // How many of a block's scores are added up.
  int64_t counted_in_group() const { return group_best > 0 ? group_best : topk / group_topk; }
};

// The largest of these that the kernels take.
inline constexpr int64_t kMostExperts = 1024, kMostTopk = 64;

// logits [t, e]; bias [e] or undefined, for the choice alone -> indices i32 [t, k], the best first;
// probs [t, k].
PHX_KERNEL(void, route,
           (const Tensor& logits, const Tensor& bias, const RouterOptions& options, Tensor& indices,
            Tensor& probs))

// The weights of given choices: indices i32 [t, k] -> probs [t, k].
PHX_KERNEL(void, route_given,
           (const Tensor& logits, const Tensor& indices, const RouterOptions& options,
            Tensor& probs))

// How evenly tokens are spread. Tokens are [s, b] as rows, so token i belongs to sample i % b.
// sums [2 b e + 2]: for each sample and expert how many tokens of the sample have it among their k
// best scores, without bias and groups; then the sums of their normalised scores (softmax, or
// sigmoid over its sum); then the sums of logsumexp(l)^2 and of the scores' entropies.
void route_balance(const Tensor& logits, const RouterOptions& options, int64_t samples,
                   Tensor& sums);
PHX_KERNEL(void, route_balance,
           (const Tensor& logits, const RouterOptions& options, int64_t samples, Tensor& workspace,
            Tensor& sums))
inline int64_t balance_size(int64_t samples, int64_t experts) { return 2 * samples * experts + 2; }
// On cuda a sample's tokens are added up in so many chunks, whose sums lie in the workspace.
constexpr int64_t balance_chunks(int64_t tokens, int64_t samples) {
  return std::clamp<int64_t>(ceil_div(tokens / samples, 32), 1,
                             std::max<int64_t>(1, 256 / samples));
}

// What the balance costs:
//   batch   * sum over e of n_e P_e               n, P: counts and scores of the whole micro-batch
//   sample  * sum over samples and e of n_e P_e   n, P: of one sample
//   past    * sum over e of f_e P_e               f: shares of `loads`; of n where these are zero
//   z       * sum over tokens of logsumexp^2
// and, for whoever looks at it, entropy * sum over tokens of the scores' entropy.
struct BalanceFactors {
  double batch = 0, sample = 0, past = 0, z = 0, entropy = 0;
  double count = 1;  // what n is multiplied by in the tally: 1 / ranks that share the micro-batch
};
inline constexpr int64_t kBalanceCosts = 5;

// What a layer's router counts in a step, f64 [2 e + 8], one behind the other:
//   chosen [e]                    this rank's rows of each expert, without those that were dropped
//   dropped, tokens, calls        choices that were dropped, tokens, and calls of the layer
//   scored [e]                    n of the micro-batches, a part of it from each rank that shares
//   one costs [5]                     of the micro-batches, all of them from each such rank
struct RouterTally {
  Tensor row;
  int64_t experts = 0;

  static int64_t width(int64_t experts) { return 2 * experts + 3 + kBalanceCosts; }
  Tensor choices() const { return row.rows(0, experts + 3); }
  Tensor balance() const { return row.rows(experts + 3, experts + kBalanceCosts); }
  Tensor chosen() const { return row.rows(0, experts); }
  Tensor scored() const { return row.rows(experts + 3, experts); }
};

// sums as above, of all ranks; scale [1]; loads [e] or undefined -> slopes [b e + 1]: scale times
// the derivatives by a token's normalised scores (for its sample), then 2 z scale, by
// logsumexp / 2. n and the five terms, without scale, are added to RouterTally::balance(), if it is
// defined.
PHX_KERNEL(void, balance_slopes,
           (const Tensor& sums, int64_t experts, const BalanceFactors& factors, const Tensor& scale,
            const Tensor& loads, Tensor& slopes, const Tensor& tally))

// indices i32 [t, k], -1: dropped; added to RouterTally::choices().
PHX_KERNEL(void, count_choices, (const Tensor& indices, int64_t experts, const Tensor& tally))

// The end of a step with the tally of all ranks, unless skip f64 [1] is 1. bias [e], if defined,
// moves by `rate` towards the mean of `chosen`: up where an expert got fewer rows, down where it
// got more. loads [e], if defined, becomes `scored`.
PHX_KERNEL(void, end_router_step,
           (const RouterTally& tally, const Tensor& skip, double rate, Tensor& bias, Tensor& loads))

// dprobs [t, k]; slopes [b e + 1] or undefined; dlogits [t, e] sink
PHX_KERNEL(void, route_backward,
           (const Tensor& logits, const Tensor& indices, const Tensor& dprobs, const Tensor& slopes,
            const RouterOptions& options, const Sink& dlogits))

// Choices that every expert gets equally often, whatever the logits: for benchmarks. Token i's
// j-th expert is (i k + j) mod e, from `first_token` on.
PHX_KERNEL(void, route_evenly, (int64_t first_token, int64_t experts, Tensor& indices))

// Tokens that an expert has no room for: of the [t, k] choices of a micro-batch each expert keeps
// `capacity`, those with the largest weight (`by_weight`; equal ones: the earlier token) or the
// earliest tokens. keep u8 [t, k]. On cuda choices are sorted in the workspace.
void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t experts,
                          int64_t capacity, bool by_weight, Tensor& keep);
PHX_KERNEL(void, keep_within_capacity,
           (const Tensor& indices, const Tensor& probs, int64_t experts, int64_t capacity,
            bool by_weight, Tensor& workspace, Tensor& keep))

// The choices that are kept: indices i32 [t, k], -1 where `keep` is 0; probs 0 there.
PHX_KERNEL(void, drop_choices, (const Tensor& keep, Tensor& indices, Tensor& probs))

}  // namespace phx::kernels
