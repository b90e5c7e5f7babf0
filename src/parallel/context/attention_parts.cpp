#include "phalanx/parallel/context/attention_parts.h"

#include <algorithm>
#include <utility>

#include "phalanx/kernels/attention_merge.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {

namespace {

// In the type of the tensors; the tensor itself where that is its own.
Tensor rounded(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = empty(x.shape(), dtype, x.device());
  kernels::cast(x, y);
  return y;
}

}  // namespace

Tensor HeadTensors::keys_and_values() const {
  if (tensors.size() == 2) return tensors[1].detach();
  Tensor kv = empty({s(), b(), key_channels()}, tensors[0].dtype(), tensors[0].device());
  copy_columns(tensors[0], heads.n * heads.d, kv);
  return kv;
}

KeyViews key_views(const Tensor& kv, const QkvHeads& heads) {
  return {.k = heads_from(kv, 0, heads.d, heads.g),
          .v = heads_from(kv, heads.g * heads.d, heads.value_channels(), heads.g)};
}

bool ContextProblem::sees(int64_t query_chunk, int64_t key_chunk) const {
  const std::array<int64_t, 2> range = seen(query_chunk);
  return key_chunk >= range[0] && key_chunk <= range[1];
}

std::array<int64_t, 2> ContextProblem::seen(int64_t query_chunk) const {
  const int64_t last = options.causal ? query_chunk : cut.num_chunks() - 1;
  if (options.window_left < 0) return {0, last};
  return {std::max<int64_t>(query_chunk * chunk - options.window_left, 0) / chunk, last};
}

ContextProblem context_problem(const HeadTensors& in, const AttentionOptions& options,
                               const PackedSequences& packed, const SequenceCut& cut) {
  PHX_CHECK(in.s() % 2 == 0 && in.s() > 0, "a rank of context parallelism has two chunks, so ",
            in.s(), " rows should be an even number");
  return {.in = in, .options = options, .packed = packed, .cut = cut, .chunk = in.s() / 2};
}

kernels::AttentionInputs chunk_inputs(const ContextProblem& problem, size_t nth,
                                      const KeyViews& keys, int64_t first_key) {
  const int64_t c = problem.chunk;
  return {
      .q = problem.in.q().rows(int64_t(nth) * c, c),
      .k = keys.k,
      .v = keys.v,
      .cu_seqlens = problem.packed.cu_seqlens,
      .max_seqlen = problem.packed.max_seqlen,
      .place = kernels::AttentionPlace{.query = problem.cut.chunks()[nth] * c, .key = first_key}};
}

void MergedAttention::add(const KeyViews& keys, int64_t first_key) {
  const QkvHeads& heads = problem_.in.heads;
  const Tensor& like = problem_.in.tensors[0];
  const int64_t c = problem_.chunk, b = problem_.in.b(), n = heads.n, dv = heads.value_channels();
  Tensor part = empty({c, b, n * dv}, like.dtype(), like.device());
  Tensor lse = empty({b, n, c}, problem_.acc(), like.device());
  kernels::attention(chunk_inputs(problem_, nth_, keys, first_key), problem_.options,
                     heads_of(part, dv, 0, n), lse);
  if (!lse_.defined()) {
    first_ = part, lse_ = lse;
    return;
  }
  if (!sum_.defined()) {
    sum_ = empty(part.shape(), problem_.acc(), like.device());
    kernels::cast(std::exchange(first_, {}), sum_);
  }
  kernels::merge_attention(part, lse, sum_, lse_);
}

Tensor MergedAttention::finish(const Tensor& o) {
  Tensor rows = o;
  if (sum_.defined())
    kernels::cast(std::exchange(sum_, {}), rows);
  else
    copy(std::exchange(first_, {}), rows);
  return std::exchange(lse_, {});
}

ContextResult kept_or(const ContextProblem& problem, KeptAttention* kept,
                      const std::function<ContextResult()>& forward) {
  const KeptAttention::Result found =
      KeptAttention::get(kept, problem.in.tensors[0].runtime(), [&] {
        const ContextResult made = forward();
        return KeptAttention::Result{.o = made.o, .lse = {made.lse[0], made.lse[1]}};
      });
  return {.o = found.o, .lse = {found.lse[0], found.lse[1]}};
}

Tensor with_context_backward(const ContextProblem& problem, const ContextResult& result,
                             const ContextBackward& backward) {
  ContextProblem kept = problem;
  for (Tensor& tensor : kept.in.tensors) tensor = tensor.detach();
  return with_backward_many(
      {result.o}, problem.in.tensors,
      [kept, result = ContextResult{result.o.detach(), result.lse}, backward](
          std::span<const Tensor> d_o, GradOut& grad) { backward(kept, result, d_o[0], grad); })[0];
}

void store_gradients(const ContextProblem& problem, const Tensor& dq, const Tensor& dkv,
                     GradOut& grad) {
  const DType dtype = problem.in.tensors[0].dtype();
  Tensor& first = grad.out(0);  // of qkv, or of q
  if (problem.in.tensors.size() == 2) {
    kernels::cast(dq, first);
    kernels::cast(dkv, grad.out(1));
    return;
  }
  copy_columns(rounded(dq, dtype), 0, dq.dim(2), first, 0);
  copy_columns(rounded(dkv, dtype), 0, dkv.dim(2), first, dq.dim(2));
}

void add_part(const Tensor& part, const Tensor& sum, bool first) {
  kernels::scale(part, 1.0, Sink{sum, first ? 0.f : 1.f});
}

}  // namespace phx
