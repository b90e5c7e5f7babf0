#include "phalanx/kernels/attention.h"

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/kernels/attention_products.h"

namespace phx::kernels::meta {

namespace {

// (query, key) pairs that are computed, over the batch. The lengths of packed sequences are not
// known here: all are taken to be of the longest one's length, and parts of them to be of one.
int64_t visible_pairs(const AttentionInputs& in, const AttentionOptions& options) {
  const int64_t queries = in.max_queries(), keys = in.max_keys();
  const int64_t first = in.place ? in.first_position() : keys - queries;
  int64_t pairs = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t position = i + first;
    const int64_t end = options.causal ? std::clamp<int64_t>(position + 1, 0, keys) : keys;
    const int64_t begin =
        options.window_left < 0 ? 0 : std::max<int64_t>(0, position - options.window_left);
    pairs += std::max<int64_t>(end - begin, 0);
  }
  return in.packed() ? pairs * in.q.s / queries : pairs * in.q.b;
}

int64_t bytes_of(const HeadView& x) { return x.s * x.b * x.n * x.d * size_of(x.dtype()); }

// Takes down the products that a GPU would compute, for `phalanx tune`.
class ProductNotes final : public ProductDevice {
 public:
  explicit ProductNotes(Runtime& runtime) : use_(runtime.extension<GemmUse>()) {}
  void multiply(const GemmProblem& problem, uintptr_t, uintptr_t, uintptr_t) override {
    use_.seen.insert(problem);
  }
  void copy_rows(const Extent&, const HeadRows&, const HeadRows&) override {}
  void zero_rows(const Extent&, const HeadRows&) override {}
  void softmax(const ScoreBlock&) override {}
  void delta(const Extent&, const HeadRows&, const HeadRows&, const HeadRows&, uintptr_t) override {
  }
  void differentiate(const ScoreBlock&, const Gradients&) override {}

 private:
  GemmUse& use_;
};

bool by_products(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass) {
  return in.q.device().target() == DeviceKind::cuda &&
         choose_cuda_attention(in, options, pass) == CudaAttention::products;
}

}  // namespace

void attention(const AttentionInputs& in, const AttentionOptions& options, Tensor&,
               const HeadView& o, Tensor& lse) {
  if (by_products(in, options, AttentionPass::forward)) {
    ProductNotes notes(in.q.device().runtime());
    product_attention(notes, in, options, o, 0);
  }
  in.q.device().runtime().count(
      {.flops = 2 * visible_pairs(in, options) * in.q.n * (in.q.d + in.v.d),  // q k^T and p v
       .bytes = bytes_of(in.q) + bytes_of(in.k) + bytes_of(in.v) + bytes_of(o) + lse.bytes()});
}

void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o, Tensor&,
                        const AttentionGradients& grads) {
  if (by_products(in, options, AttentionPass::backward)) {
    ProductNotes notes(in.q.device().runtime());
    product_attention_backward(notes, in, options, o, d_o, grads, 0);
  }
  // Five products: q k^T again, dq and dk with the channels of queries, do v^T and dv with those of
  // values.
  in.q.device().runtime().count(
      {.flops = 2 * visible_pairs(in, options) * in.q.n * (3 * in.q.d + 2 * in.v.d),
       .bytes = bytes_of(in.q) + bytes_of(in.k) + bytes_of(in.v) + bytes_of(o) + lse.bytes() +
                bytes_of(d_o) + bytes_of(grads.dq) + bytes_of(grads.dk) + bytes_of(grads.dv)});
}

namespace {

// Scores' gradients in 16 bits, delta, and where heads share keys dk and dv of all of them.
int64_t deterministic_bytes(const AttentionInputs& in) {
  const AttentionChunk chunk = deterministic_chunk(in);
  const int64_t n = chunk.key_heads * (in.q.n / in.k.n);
  const int64_t rows = round_up(in.q.s, 128), keys = round_up(in.k.s, 128), d = in.q.d;
  const int64_t of_keys = in.q.n != in.k.n ? keys * 2 * d * 2 : 0;
  return chunk.sequences * n * (2 * rows * keys + rows * 4 + of_keys);
}

}  // namespace

// Found with cuDNN 9.19, and a little more than it asks for: some bytes a sequence.
int64_t cudnn_attention_workspace_bytes(const AttentionInputs& in, AttentionPass pass) {
  const int64_t t = in.q.b * in.q.s, n = in.q.n, d = in.q.d;
  const bool shared = n != in.k.n;
  const int64_t numbers = 64 * 1024 + 512 * (in.packed() ? t : in.q.b);
  const int64_t ours =
      in.packed() ? packed_index_bytes(in.q.s) + packed_gradient_bytes(in, pass) : 0;
  if (pass == AttentionPass::forward) return ours + numbers;
  if (in.q.device().runtime().deterministic() && !in.packed())
    return numbers + deterministic_bytes(in);
  // Sums of dq in f32, delta, and where heads share keys dk and dv of all of them. Packed: dq with
  // the strides of q, dk and dv in f32. Not packed: sequences rounded up to blocks of 128.
  if (in.packed()) return ours + numbers + t * (in.q.stride_s + n + (shared ? 2 * n * d : 0)) * 4;
  const int64_t of_keys = shared ? round_up(in.k.s, 128) * 2 * d * 2 : 0;
  return numbers + in.q.b * n * (round_up(in.q.s, 128) * (d + 1) * 4 + of_keys);
}

}  // namespace phx::kernels::meta
