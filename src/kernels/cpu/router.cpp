#include "phalanx/kernels/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/cpu/router_order.h"

namespace phx::kernels::cpu {

namespace {

template <class Acc>
Acc sigmoid(Acc x) {
  return Acc(1) / (Acc(1) + std::exp(-x));
}

// The k best of values [n] among those allowed, the lower index first where equal.
template <class Acc>
void choose_best(const std::vector<Acc>& values, int64_t k, std::vector<char>& allowed,
                 int32_t* chosen) {
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (size_t i = 0; i < values.size(); ++i)
      if (allowed[i] && (best < 0 || before(values[i], values[size_t(best)]))) best = int64_t(i);
    PHX_ASSERT(best >= 0, "a token has ", k, " experts, but only ", j, " can be chosen");
    allowed[size_t(best)] = 0;
    chosen[j] = int32_t(best);
  }
}

// A token's scores over all experts, normalised: softmax, or sigmoid over its sum.
template <class Acc>
struct TokenScores {
  std::vector<Acc> p;  // [e]
  Acc sum = 0;         // softmax: of exp(l - max); sigmoid: of the sigmoids
  Acc lse = 0;

  TokenScores(const Acc* logits, int64_t e, RouterScores kind) : p(size_t(e)) {
    const Acc top = *std::max_element(logits, logits + e);
    Acc total = 0;
    for (int64_t i = 0; i < e; ++i) total += p[size_t(i)] = std::exp(logits[i] - top);
    lse = top + std::log(total);
    sum = total;
    if (kind == RouterScores::sigmoid) {
      sum = 0;
      for (int64_t i = 0; i < e; ++i) sum += p[size_t(i)] = sigmoid(logits[i]);
    }
    for (Acc& value : p) value /= sum;
  }
};

constexpr double kSigmoidFloor = 1e-20;  // Megatron's: a sum of sigmoids is divided by

// Experts outside of the best groups cannot be chosen.
template <class Acc>
std::vector<char> allowed_experts(const std::vector<Acc>& values, const RouterOptions& options) {
  std::vector<char> allowed(values.size(), 1);
  if (options.groups <= 1) return allowed;
  const size_t size = values.size() / size_t(options.groups);
  const int64_t counted = options.counted_in_group();
  std::vector<Acc> group_values;
  for (size_t g = 0; g < size_t(options.groups); ++g) {
    std::vector<Acc> sorted(values.begin() + int64_t(g * size),
                            values.begin() + int64_t((g + 1) * size));
    std::ranges::sort(sorted, before<Acc>);
    group_values.push_back(std::accumulate(sorted.begin(), sorted.begin() + counted, Acc(0)));
  }
  std::vector<char> open(group_values.size(), 1);
  std::vector<int32_t> best(size_t(options.group_topk));
  choose_best(group_values, options.group_topk, open, best.data());
  std::ranges::fill(allowed, 0);
  for (const int32_t g : best)
    std::fill_n(allowed.begin() + int64_t(size_t(g) * size), size, char(1));
  return allowed;
}

// What experts are chosen by. Softmax keeps the order of the logits, but groups add scores up.
template <class Acc>
std::vector<Acc> scores_of(const Acc* logits, int64_t e, RouterScores kind) {
  if (kind == RouterScores::softmax_before) return TokenScores<Acc>(logits, e, kind).p;
  std::vector<Acc> scores(logits, logits + e);
  if (kind == RouterScores::sigmoid)
    for (Acc& score : scores) score = sigmoid(score);
  return scores;
}

// The weights of the chosen experts.
template <class Acc>
void weigh(const Acc* logits, int64_t e, const int32_t* chosen, const RouterOptions& options,
           Acc* probs) {
  const int64_t k = options.topk;
  const std::vector<Acc> scores = scores_of(logits, e, options.scores);
  Acc sum = 0, top = logits[chosen[0]];
  for (int64_t j = 0; j < k; ++j) top = std::max(top, logits[chosen[j]]);
  for (int64_t j = 0; j < k; ++j) {
    probs[j] = options.scores == RouterScores::softmax_after ? std::exp(logits[chosen[j]] - top)
                                                             : scores[size_t(chosen[j])];
    sum += probs[j];
  }
  Acc factor = Acc(options.scaling);
  if (options.scores == RouterScores::softmax_after) factor /= sum;
  if (options.scores == RouterScores::sigmoid && k > 1) factor /= sum + Acc(kSigmoidFloor);
  for (int64_t j = 0; j < k; ++j) probs[j] *= factor;
}

template <class Acc>
void choose(const Acc* logits, const Acc* bias, int64_t e, const RouterOptions& options,
            int32_t* chosen) {
  std::vector<Acc> values = scores_of(logits, e, options.scores);
  if (bias != nullptr)
    for (int64_t i = 0; i < e; ++i) values[size_t(i)] += bias[i];
  std::vector<char> allowed = allowed_experts(values, options);
  choose_best(values, options.topk, allowed, chosen);
}

// Of one token's weights: dl [e] is added to.
template <class Acc>
void weights_backward(const Acc* logits, int64_t e, const int32_t* chosen, const Acc* dprobs,
                      const RouterOptions& options, std::vector<Acc>& dl) {
  const int64_t k = options.topk;
  const Acc scaling = Acc(options.scaling);
  if (options.scores == RouterScores::softmax_before) {
    const TokenScores<Acc> scores(logits, e, options.scores);
    Acc dot = 0;
    for (int64_t j = 0; j < k; ++j) dot += scaling * dprobs[j] * scores.p[size_t(chosen[j])];
    for (int64_t j = 0; j < k; ++j)
      dl[size_t(chosen[j])] += scores.p[size_t(chosen[j])] * scaling * dprobs[j];
    for (int64_t i = 0; i < e; ++i) dl[size_t(i)] -= scores.p[size_t(i)] * dot;
    return;
  }
  std::vector<Acc> s(static_cast<size_t>(k));  // exp of the logit, or its sigmoid
  Acc sum = 0, top = logits[chosen[0]];
  for (int64_t j = 0; j < k; ++j) top = std::max(top, logits[chosen[j]]);
  const bool softmax = options.scores == RouterScores::softmax_after;
  for (int64_t j = 0; j < k; ++j) {
    const Acc l = logits[chosen[j]];
    sum += s[size_t(j)] = softmax ? std::exp(l - top) : sigmoid(l);
  }
  const bool normalised = softmax || k > 1;
  if (!softmax && normalised) sum += Acc(kSigmoidFloor);
  Acc dot = 0;  // of the gradient with the normalised scores
  if (normalised)
    for (int64_t j = 0; j < k; ++j) dot += scaling * dprobs[j] * s[size_t(j)] / sum;
  for (int64_t j = 0; j < k; ++j) {
    const Acc value = s[size_t(j)];
    const Acc ds = normalised ? (scaling * dprobs[j] - dot) / sum : scaling * dprobs[j];
    dl[size_t(chosen[j])] += ds * (softmax ? value : value * (Acc(1) - value));
  }
}

// Of the balance: slopes [e] are the derivatives by the token's normalised scores.
template <class Acc>
void balance_backward(const Acc* logits, int64_t e, const Acc* slopes, Acc z_slope,
                      RouterScores kind, std::vector<Acc>& dl) {
  const TokenScores<Acc> scores(logits, e, kind);
  Acc dot = 0;
  for (int64_t i = 0; i < e; ++i) dot += scores.p[size_t(i)] * slopes[i];
  for (int64_t i = 0; i < e; ++i) {
    const Acc p = scores.p[size_t(i)], d = slopes[i] - dot;
    // sigmoid: p = s / sum, so ds = d / sum and dl = ds s (1 - s) = d p (1 - p sum)
    dl[size_t(i)] += kind == RouterScores::sigmoid ? d * p * (Acc(1) - p * scores.sum) : d * p;
    if (z_slope != 0) dl[size_t(i)] += z_slope * scores.lse * std::exp(logits[i] - scores.lse);
  }
}

}  // namespace

void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options, Tensor& indices,
           Tensor& probs) {
  const int64_t t = logits.dim(0), e = logits.dim(1), k = options.topk;
  for_acc(logits, [&]<class Acc>() {
    const Acc* added = bias.defined() ? bias.data<Acc>() : nullptr;
    for_rows(logits, t, e, [&](int64_t i) {
      const Acc* l = logits.data<Acc>() + i * e;
      int32_t* chosen = indices.data<int32_t>() + i * k;
      choose(l, added, e, options, chosen);
      weigh(l, e, chosen, options, probs.data<Acc>() + i * k);
    });
  });
}

void route_given(const Tensor& logits, const Tensor& indices, const RouterOptions& options,
                 Tensor& probs) {
  const int64_t t = logits.dim(0), e = logits.dim(1), k = options.topk;
  for_acc(logits, [&]<class Acc>() {
    for_rows(logits, t, e, [&](int64_t i) {
      weigh(logits.data<Acc>() + i * e, e, indices.data<int32_t>() + i * k, options,
            probs.data<Acc>() + i * k);
    });
  });
}

void route_balance(const Tensor& logits, const RouterOptions& options, int64_t samples, Tensor&,
                   Tensor& sums) {
  const int64_t t = logits.dim(0), e = logits.dim(1);
  for_acc(logits, [&]<class Acc>() {
    Acc* counts = sums.data<Acc>();
    Acc *scores = counts + samples * e, *z = scores + samples * e, *entropy = z + 1;
    std::fill(counts, entropy + 1, Acc(0));
    std::vector<int32_t> chosen(static_cast<size_t>(options.topk));
    for (int64_t i = 0; i < t; ++i) {  // one thread: the order of additions is the tokens'
      const int64_t sample = i % samples;
      const TokenScores<Acc> token(logits.data<Acc>() + i * e, e, options.scores);
      std::vector<char> allowed(size_t(e), 1);
      choose_best(token.p, options.topk, allowed, chosen.data());
      for (const int32_t expert : chosen) counts[sample * e + expert] += Acc(1);
      Acc of_token = 0;  // of its own: many small numbers added to a large sum would lose digits
      for (int64_t j = 0; j < e; ++j) {
        const Acc p = token.p[size_t(j)];
        scores[sample * e + j] += p;
        if (p > 0) of_token -= p * std::log(p);
      }
      *entropy += of_token;
      *z += token.lse * token.lse;
    }
  });
}

void balance_slopes(const Tensor& sums, int64_t experts, const BalanceFactors& factors,
                    const Tensor& scale, const Tensor& loads, Tensor& slopes, const Tensor& tally) {
  const int64_t cells = slopes.numel() - 1;  // b e
  for_acc(sums, [&]<class Acc>() {
    const Acc *counts = sums.data<Acc>(), *scores = counts + cells;
    std::vector<double> n(size_t(experts), 0.0), p(size_t(experts), 0.0);  // of all samples
    double cost[kBalanceCosts] = {};
    for (int64_t i = 0; i < cells; ++i) {
      n[size_t(i % experts)] += double(counts[i]);
      p[size_t(i % experts)] += double(scores[i]);
      cost[1] += factors.sample * double(counts[i]) * double(scores[i]);
    }
    std::vector<double> share = n;  // of all choices
    if (loads.defined()) {
      const Acc* past = loads.data<Acc>();
      if (std::accumulate(past, past + experts, 0.0) > 0) share.assign(past, past + experts);
    }
    const double total = std::accumulate(share.begin(), share.end(), 0.0);
    for (double& value : share) value /= total;
    for (size_t j = 0; j < size_t(experts); ++j) {
      cost[0] += factors.batch * n[j] * p[j];
      cost[2] += factors.past * share[j] * p[j];
    }
    cost[3] = factors.z * double(scores[cells]);
    cost[4] = factors.entropy * double(scores[cells + 1]);
    const Acc factor = scale.data<Acc>()[0];
    for (int64_t i = 0; i < cells; ++i) {
      const auto j = size_t(i % experts);
      slopes.data<Acc>()[i] =
          factor *
          Acc(factors.batch * n[j] + factors.sample * double(counts[i]) + factors.past * share[j]);
    }
    slopes.data<Acc>()[cells] = factor * Acc(2 * factors.z);
    if (!tally.defined()) return;
    for (int64_t j = 0; j < experts; ++j) tally.data<double>()[j] += factors.count * n[size_t(j)];
    for (int64_t c = 0; c < kBalanceCosts; ++c) tally.data<double>()[experts + c] += cost[c];
  });
}

void count_choices(const Tensor& indices, int64_t experts, const Tensor& tally) {
  double* counts = tally.data<double>();
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int32_t expert = indices.data<int32_t>()[i];
    counts[expert >= 0 ? expert : experts] += 1;
  }
  counts[experts + 1] += double(indices.dim(0));
  counts[experts + 2] += 1;
}

void end_router_step(const RouterTally& tally, const Tensor& skip, double rate, Tensor& bias,
                     Tensor& loads) {
  if (skip.data<double>()[0] != 0) return;
  const int64_t e = tally.experts;
  const double *chosen = tally.chosen().data<double>(), *scored = tally.scored().data<double>();
  const double mean = std::accumulate(chosen, chosen + e, 0.0) / double(e);
  if (bias.defined())
    for_acc(bias, [&]<class Acc>() {
      for (int64_t j = 0; j < e; ++j) {
        const double lack = mean - chosen[j];
        bias.data<Acc>()[j] += Acc(lack > 0 ? rate : lack < 0 ? -rate : 0.0);
      }
    });
  if (loads.defined())
    for_acc(loads, [&]<class Acc>() { std::copy_n(scored, e, loads.data<Acc>()); });
}

void route_backward(const Tensor& logits, const Tensor& indices, const Tensor& dprobs,
                    const Tensor& slopes, const RouterOptions& options, const Sink& dlogits) {
  const int64_t t = logits.dim(0), e = logits.dim(1), k = options.topk;
  const int64_t samples = slopes.defined() ? (slopes.numel() - 1) / e : 1;
  for_acc(logits, [&]<class Acc>() {
    for_rows(logits, t, e, [&](int64_t i) {
      const Acc* l = logits.data<Acc>() + i * e;
      std::vector<Acc> dl(size_t(e), Acc(0));
      weights_backward(l, e, indices.data<int32_t>() + i * k, dprobs.data<Acc>() + i * k, options,
                       dl);
      if (slopes.defined()) {
        const Acc* all = slopes.data<Acc>();
        balance_backward(l, e, all + i % samples * e, all[samples * e], options.scores, dl);
      }
      Acc* out = dlogits.tensor.data<Acc>() + i * e;
      for (int64_t j = 0; j < e; ++j)
        out[j] = dlogits.beta != 0.f ? out[j] + dl[size_t(j)] : dl[size_t(j)];
    });
  });
}

void route_evenly(int64_t first_token, int64_t experts, Tensor& indices) {
  const int64_t k = indices.dim(1);
  for (int64_t i = 0; i < indices.numel(); ++i)
    indices.data<int32_t>()[i] = int32_t((first_token * k + i) % experts);
}

}  // namespace phx::kernels::cpu
