#include "phalanx/ops/attention.h"

#include "phalanx/core/autograd.h"

namespace phx {

using kernels::AttentionInputs;

KeptAttention::Result KeptAttention::get(KeptAttention* kept, Runtime& runtime,
                                         const std::function<Result()>& attend) {
  if (kept == nullptr) return attend();
  if (!runtime.grad_enabled()) {
    kept->results_.push_back(attend());
    return kept->results_.back();
  }
  PHX_ASSERT(!kept->results_.empty(), "attention is computed again that was not computed before");
  Result result = std::move(kept->results_.front());
  kept->results_.pop_front();
  return result;
}

// o [s, b, n * dv] and its log-sum-exp [b, n, s].
static KeptAttention::Result attend(const AttentionInputs& in, const AttentionOptions& options,
                                    KeptAttention* kept) {
  return KeptAttention::get(kept, in.q.device().runtime(), [&] {
    const int64_t s = in.q.s, b = in.q.b, n = in.q.n, dv = in.v.d;
    const DType dtype = in.q.dtype();
    Tensor o = empty({s, b, n * dv}, dtype, in.q.device());
    Tensor lse = empty({b, n, s}, acc_dtype(dtype), in.q.device());
    kernels::attention(in, options, heads_of(o, dv, 0, n), lse);
    return KeptAttention::Result{.o = o, .lse = {lse}};
  });
}

Tensor attention(const Tensor& qkv, const QkvHeads& heads, const AttentionOptions& options,
                 const PackedSequences& packed,
                 KeptAttention* kept) {  // [s, b, (n + 2g) * d] -> [s, b, n * d]
  const int64_t n = heads.n, g = heads.g, d = heads.d;
  PHX_CHECK(heads.value_channels() == d, "attention: within one tensor value heads have the ", d,
            " channels of query heads, not ", heads.dv, ": give q, k and v apart");
  PHX_CHECK(qkv.rank() == 3 && qkv.dim(2) == (n + 2 * g) * d, "attention: with ", n,
            " query heads, ", g, " key heads and ", d, " channels a head qkv should be [s, b, ",
            (n + 2 * g) * d, "], but it is ", qkv.shape());
  const AttentionInputs in{.q = heads_of(qkv, d, 0, n),
                           .k = heads_of(qkv, d, n, g),
                           .v = heads_of(qkv, d, n + g, g),
                           .cu_seqlens = packed.cu_seqlens,
                           .max_seqlen = packed.max_seqlen};
  const KeptAttention::Result found = attend(in, options, kept);
  return with_backward(found.o, {qkv},
                       [in, heads, options, o = found.o.detach(), lse = found.lse[0]](
                           const Tensor& d_o, GradOut& grad) {  // [s, b, n*d]
                         const int64_t n = heads.n, g = heads.g, d = heads.d;
                         const Tensor& dqkv = grad.out(0);
                         kernels::attention_backward(in, options, heads_of(o, d, 0, n), lse,
                                                     heads_of(d_o, d, 0, n),
                                                     {.dq = heads_of(dqkv, d, 0, n),
                                                      .dk = heads_of(dqkv, d, n, g),
                                                      .dv = heads_of(dqkv, d, n + g, g)});
                       });
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const QkvHeads& heads,
                 const AttentionOptions& options, const PackedSequences& packed) {
  const int64_t n = heads.n, g = heads.g, d = heads.d, dv = heads.value_channels();
  PHX_CHECK(q.rank() == 3 && q.dim(2) == n * d, "attention: with ", n, " heads of ", d,
            " channels q should be [sq, b, ", n * d, "], but it is ", q.shape());
  PHX_CHECK(k.rank() == 3 && k.dim(2) == g * d && v.shape() == Shape({k.dim(0), k.dim(1), g * dv}),
            "attention: with ", g, " heads of ", d, " and ", dv,
            " channels k and v should be [sk, b, ", g * d, "] and [sk, b, ", g * dv,
            "], but they are ", k.shape(), " and ", v.shape());
  const AttentionInputs in{.q = heads_of(q, d, 0, n),
                           .k = heads_of(k, d, 0, g),
                           .v = heads_of(v, dv, 0, g),
                           .cu_seqlens = packed.cu_seqlens,
                           .max_seqlen = packed.max_seqlen};
  const KeptAttention::Result found = attend(in, options, nullptr);
  return with_backward(found.o, {q, k, v},
                       [in, heads, options, o = found.o.detach(), lse = found.lse[0]](
                           const Tensor& d_o,
                           GradOut& grad) {  // [sq, b, n*dv]
                         const int64_t n = heads.n, g = heads.g, d = heads.d,
                                       dv = heads.value_channels();
                         kernels::attention_backward(in, options, heads_of(o, dv, 0, n), lse,
                                                     heads_of(d_o, dv, 0, n),
                                                     {.dq = heads_of(grad.out(0), d, 0, n),
                                                      .dk = heads_of(grad.out(1), d, 0, g),
                                                      .dv = heads_of(grad.out(2), dv, 0, g)});
                       });
}

Tensor attention(const Tensor& q, const Tensor& kv, const QkvHeads& heads,
                 const AttentionOptions& options, const PackedSequences& packed,
                 KeptAttention* kept) {
  const int64_t n = heads.n, g = heads.g, d = heads.d, dv = heads.value_channels();
  PHX_CHECK(q.rank() == 3 && q.dim(2) == n * d, "attention: with ", n, " heads of ", d,
            " channels q should be [sq, b, ", n * d, "], but it is ", q.shape());
  PHX_CHECK(kv.rank() == 3 && kv.dim(1) == q.dim(1) && kv.dim(2) == g * (d + dv),
            "attention: with ", g, " heads of ", d, " and ", dv,
            " channels keys and values should be [sk, ", q.dim(1), ", ", g * (d + dv),
            "], but they are ", kv.shape());
  const AttentionInputs in{.q = heads_of(q, d, 0, n),
                           .k = heads_from(kv, 0, d, g),
                           .v = heads_from(kv, g * d, dv, g),
                           .cu_seqlens = packed.cu_seqlens,
                           .max_seqlen = packed.max_seqlen};
  const KeptAttention::Result found = attend(in, options, kept);
  return with_backward(found.o, {q, kv},
                       [in, heads, options, o = found.o.detach(), lse = found.lse[0]](
                           const Tensor& d_o, GradOut& grad) {
                         const int64_t n = heads.n, g = heads.g, d = heads.d,
                                       dv = heads.value_channels();
                         const Tensor& dkv = grad.out(1);
                         kernels::attention_backward(in, options, heads_of(o, dv, 0, n), lse,
                                                     heads_of(d_o, dv, 0, n),
                                                     {.dq = heads_of(grad.out(0), d, 0, n),
                                                      .dk = heads_from(dkv, 0, d, g),
                                                      .dv = heads_from(dkv, g * d, dv, g)});
                       });
}

}  // namespace phx
