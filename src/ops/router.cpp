#include "phalanx/ops/router.h"

#include "phalanx/core/autograd.h"
#include "phalanx/core/compute_stream.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/matmul.h"

namespace phx {

namespace {

// The factors of sums over tokens, from coefficients of means.
kernels::BalanceFactors factors_of(const BalanceLosses& losses, int64_t tokens, int64_t samples,
                                   int64_t experts, int64_t topk, int ranks) {
  const double t = double(tokens), s = t / double(samples);
  const double spread = double(experts) / double(topk);
  return {.batch = losses.batch * spread / (t * t),
          .sample = losses.sample * spread / (s * s) / double(samples),
          .past = losses.past * double(experts) / t,
          .z = losses.z / t,
          .entropy = 1 / t,
          .count = 1 / double(ranks)};
}

// [b e + 1], or undefined if nothing has to be balanced. What is recomputed later waits for that:
// it is counted once, and here nobody needs the slopes.
Tensor slopes_of(const Tensor& logits, const RouterOptions& options, const BalanceLosses& losses,
                 const BalanceContext& context) {
  if (!context.scale.defined() || !logits.runtime().grad_enabled()) return {};
  if (!losses.any() && !context.tally.defined()) return {};
  const int64_t t = logits.dim(0), e = logits.dim(1), b = context.samples;
  const int ranks = context.tokens == nullptr ? 1 : context.tokens->size();
  Tensor sums = empty({kernels::balance_size(b, e)}, logits.dtype(), logits.device());
  kernels::route_balance(logits, options, b, sums);
  if (ranks > 1) context.tokens->all_reduce(sums, compute_stream(sums));
  Tensor slopes = empty({b * e + 1}, logits.dtype(), logits.device());
  kernels::balance_slopes(sums, e, factors_of(losses, t * ranks, b, e, options.topk, ranks),
                          context.scale, context.loads, slopes, context.tally);
  return losses.any() ? slopes : Tensor();
}

Tensor with_route_backward(const Tensor& probs, const Tensor& logits, const Tensor& indices,
                           const Tensor& slopes, const RouterOptions& options) {
  return with_backward(probs, {logits},
                       [logits = logits.detach(), indices, slopes, options](
                           const Tensor& dprobs, GradOut& grad) {  // [t, k]
                         kernels::route_backward(logits, indices, dprobs, slopes, options,
                                                 grad.add(0));
                       });
}

}  // namespace

Tensor router_logits(const Tensor& x, const Tensor& w,
                     RouterGradients gradients) {  // [t, h], [e, h] -> [t, e]
  PHX_CHECK(x.rank() == 2 && w.rank() == 2 && x.dim(1) == w.dim(1), "router_logits: x is ",
            x.shape(), ", so w should be [e, ", x.dim(-1), "], but it is ", w.shape());
  const DType acc = acc_dtype(x.dtype());
  const bool wide = gradients == RouterGradients::wide && acc != x.dtype();
  Tensor logits = empty({x.dim(0), w.dim(0)}, acc, x.device());
  kernels::matmul(x, w, {.transpose_b = true}, {logits});
  return with_backward(
      logits, {x, w},
      [x = x.detach(), w = w.detach(), acc, wide](const Tensor& dy, GradOut& grad) {  // [t, e]
        const auto as = [](const Tensor& from, DType dtype) {
          if (from.dtype() == dtype) return from;
          Tensor to = empty(from.shape(), dtype, from.device());
          kernels::cast(from, to);
          return to;
        };
        // The operands of a product have one type.
        const Tensor dlogits = as(dy, wide ? acc : x.dtype());
        // A product of wide operands cannot go into a narrow sink.
        const auto multiply = [](const Tensor& a, const Tensor& b,
                                 const kernels::MatmulOptions& options, const Sink& sink) {
          if (sink.tensor.dtype() == a.dtype() || sink.tensor.dtype() == acc_dtype(a.dtype()))
            return kernels::matmul(a, b, options, sink);
          Tensor product = empty(sink.tensor.shape(), a.dtype(), a.device());
          kernels::matmul(a, b, options, {product});
          kernels::scale(product, 1.0, sink);
        };
        if (grad.wants(0)) multiply(dlogits, wide ? as(w, acc) : w, {}, grad.add(0));
        grad.later(1, [x = wide ? as(x, acc) : x, dlogits, multiply](const Sink& dw) {
          multiply(dlogits, x, {.transpose_a = true}, dw);
        });
      });
}

Routing route(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
              const BalanceLosses& losses, const BalanceContext& context) {
  const Shape choices{logits.dim(0), options.topk};
  Routing routing{.indices = empty(choices, DType::i32, logits.device()),
                  .probs = empty(choices, logits.dtype(), logits.device())};
  kernels::route(logits, bias, options, routing.indices, routing.probs);
  routing.probs = with_route_backward(routing.probs, logits, routing.indices,
                                      slopes_of(logits, options, losses, context), options);
  return routing;
}

Routing route_to(const Tensor& logits, const Tensor& indices, const RouterOptions& options) {
  // The weights of given choices: those experts are the only ones.
  Tensor probs = empty(indices.shape(), logits.dtype(), logits.device());
  kernels::route_given(logits, indices, options, probs);
  return {.indices = indices,
          .probs = with_route_backward(probs, logits, indices, Tensor(), options)};
}

Routing within_capacity(const Routing& routing, const Capacity& capacity, Communicator* ranks) {
  const Tensor &indices = routing.indices, probs = routing.probs.detach();
  const int size = ranks == nullptr ? 1 : ranks->size();
  const Shape all{indices.dim(0) * size, indices.dim(1)};
  Tensor all_indices = indices, all_probs = probs;
  if (size > 1) {
    all_indices = empty(all, indices.dtype(), indices.device());
    all_probs = empty(all, probs.dtype(), probs.device());
    ranks->all_gather(indices, all_indices, compute_stream(indices));
    ranks->all_gather(probs, all_probs, compute_stream(probs));
  }
  if (capacity.in_sequence) {
    all_indices = capacity.in_sequence(all_indices);
    all_probs = capacity.in_sequence(all_probs);
  }
  Tensor keep = empty(all, DType::u8, indices.device());
  kernels::keep_within_capacity(all_indices, all_probs, capacity.experts, capacity.rows,
                                capacity.by_weight, keep);
  if (capacity.by_rank) keep = capacity.by_rank(keep);
  const int64_t first = ranks == nullptr ? 0 : ranks->rank() * indices.dim(0);
  keep = keep.rows(first, indices.dim(0));
  Routing kept{.indices = empty_like(indices), .probs = empty_like(probs)};
  copy(indices, kept.indices);
  copy(probs, kept.probs);
  kernels::drop_choices(keep, kept.indices, kept.probs);
  kept.probs = with_backward(kept.probs, {routing.probs},
                             [keep](const Tensor& dprobs, GradOut& grad) {  // [t, k]
                               Tensor& out = grad.out(0);
                               copy(dprobs, out);
                               Tensor ignored = empty(dprobs.shape(), DType::i32, dprobs.device());
                               kernels::drop_choices(keep, ignored, out);
                             });
  return kept;
}

}  // namespace phx
