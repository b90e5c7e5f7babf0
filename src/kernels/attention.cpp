#include "phalanx/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "phalanx/base/math.h"
#include "phalanx/kernels/attention_products.h"
#include "phalanx/kernels/attention_use.h"
#include "phalanx/kernels/matmul.h"

namespace phx::kernels {

namespace {

Tensor make_workspace(const AttentionInputs& in, const AttentionOptions& options,
                      AttentionPass pass, int64_t bytes) {
  const Device device = in.q.device();
  if (device.target() == DeviceKind::cuda &&
      choose_cuda_attention(in, options, pass) == CudaAttention::products)
    matmul_workspace(device.runtime());  // made where the device does not matter
  return bytes == 0 ? Tensor() : empty({bytes}, DType::u8, device, Purpose::workspace);
}

// A view of the wrong shape or type is named in full.
void check_view(const char* name, const HeadView& x, const Shape& expected, DType dtype) {
  const Shape shape = {x.s, x.b, x.n, x.d};
  PHX_CHECK(shape == expected && x.dtype() == dtype, "attention: ", name, " should be ", expected,
            " in ", dtype, ", but it is ", shape, " in ", x.dtype());
}

}  // namespace

double attention_scale(const AttentionInputs& in, const AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1 / std::sqrt(double(in.q.d));
}

void check_attention(const AttentionInputs& in, const AttentionOptions& options) {
  const HeadView &q = in.q, &k = in.k;
  PHX_CHECK(k.n > 0 && q.n % k.n == 0, "attention: ", q.n, " query heads cannot share ", k.n,
            " key heads: the first must be a multiple of the second");
  PHX_CHECK(q.d > 0 && q.d <= kMaxHeadSize, "attention: a head has 1 to ", kMaxHeadSize,
            " channels, not ", q.d);
  check_view("k", k, {k.s, q.b, k.n, q.d}, q.dtype());
  PHX_CHECK(in.v.d > 0 && in.v.d <= q.d, "attention: value heads have 1 to ", q.d,
            " channels, as many as query heads or fewer, not ", in.v.d);
  check_view("v", in.v, {k.s, q.b, k.n, in.v.d}, q.dtype());
  PHX_CHECK(!options.causal || in.place || k.s >= q.s, "attention: ", q.s,
            " causal queries cannot be the last of ", k.s, " keys");
  PHX_CHECK(k.s > 0 || q.s == 0, "attention: ", q.s, " queries have no key to look at");
  PHX_CHECK(options.window_left >= -1, "attention: a window of ", options.window_left,
            " earlier keys: it should be -1 (all) or more");
  PHX_CHECK(options.softcap >= 0, "attention: softcap ", options.softcap,
            " should be positive, or 0 for none");
  PHX_CHECK(options.dropout >= 0 && options.dropout < 1, "attention: dropout ", options.dropout,
            " should be in [0, 1)");
  if (!in.packed()) return;
  PHX_CHECK(q.b == 1 && (in.place || q.s == k.s),
            "attention: packed sequences have b = 1 and as many queries as ", "keys, but q is ",
            Shape({q.s, q.b, q.n, q.d}), " and k is ", Shape({k.s, k.b, k.n, k.d}));
  PHX_CHECK(in.cu_seqlens.dtype() == DType::i32 && in.cu_seqlens.rank() == 1 &&
                in.cu_seqlens.dim(0) >= 2 && in.cu_seqlens.device() == q.device(),
            "attention: cu_seqlens should be [sequences + 1] in i32 on q's device, but it is ",
            in.cu_seqlens.shape(), " in ", in.cu_seqlens.dtype());
  PHX_CHECK(in.max_seqlen > 0 && (in.place || in.max_seqlen <= q.s), "attention: max_seqlen ",
            in.max_seqlen, " should be in [1, ", q.s, "]");
}

std::optional<PlainAttention> without_place(const AttentionInputs& in,
                                            const AttentionOptions& options) {
  PlainAttention plain{in, options};
  plain.in.place.reset();
  if (!in.place) return plain;
  // Dropout and packed sequences ask for positions in the whole.
  if (options.dropout > 0 || in.packed()) return std::nullopt;
  if (in.first_position() == in.k.s - in.q.s) return plain;
  const bool all_before = in.first_position() >= in.k.s - 1;
  const bool all_in_window =
      options.window_left < 0 || in.first_position() + in.q.s - 1 <= options.window_left;
  if ((options.causal && !all_before) || !all_in_window) return std::nullopt;
  plain.options.causal = false;
  plain.options.window_left = -1;
  return plain;
}

AttentionChunk deterministic_chunk(const AttentionInputs& in) {
  constexpr int64_t kBlock = 128;  // cuDNN's tiles of scores
  const int64_t group = in.q.n / in.k.n;
  const int64_t bytes_of_key_head = 2 * group * round_up(in.q.s, kBlock) * round_up(in.k.s, kBlock);
  const auto largest_divisor = [](int64_t count, int64_t most) {
    for (int64_t part = std::min(count, most); part > 0; --part)
      if (count % part == 0) return part;
    return int64_t{0};
  };
  const int64_t key_heads = largest_divisor(in.k.n, kDeterministicScoreBytes / bytes_of_key_head);
  if (key_heads < in.k.n) return {key_heads > 0 ? 1 : 0, key_heads};
  return {largest_divisor(in.q.b, kDeterministicScoreBytes / (bytes_of_key_head * in.k.n)),
          key_heads};
}

// Options are checked before a run (train/layout.h), so nobody should come here with others.
static PlainAttention plainly(const AttentionInputs& in, const AttentionOptions& options) {
  const std::optional<PlainAttention> plain = without_place(in, options);
  PHX_CHECK(plain.has_value(), "attention: on GPUs queries from ", in.place->query,
            " on and keys from ", in.place->key,
            " on are parts that no kernel there knows\n  hint: --cp-comm-type a2a");
  return *plain;
}

AttentionChoice choose_cuda_attention(const AttentionInputs& in, const AttentionOptions& options,
                                      AttentionPass pass) {
  const auto own = [](const char* why) { return AttentionChoice{CudaAttention::own, why}; };
  const HeadView& q = in.q;
  if (q.dtype() != DType::bf16 && q.dtype() != DType::f16)
    return own("cuDNN's attention takes 16-bit types only");
  if (options.dropout > 0)
    return own(
        "cuDNN's dropout would depend on the layout of ranks; --attention-dropout 0 is fast");
  if (options.softcap > 0) {
    if (const char* why = why_no_products(in)) return own(why);
    return {CudaAttention::products, "cuDNN has no backward with a soft cap on this GPU"};
  }
  for (const HeadView* x : {&in.q, &in.k, &in.v})
    if (x->d % 8 || x->offset % 8 || x->stride_s % 8 || x->stride_b % 8 || x->stride_n % 8)
      return own("cuDNN needs head sizes and strides that are multiples of 8");
  // One token of decoding: latency, not throughput, and a plan would have to be built for every
  // length of the past.
  if (in.q.s == 1 && in.k.s > 1) return own("a single query of a longer past needs no tiles");
  // Its graphs align the causal mask with the first key, so the last queries of more keys would
  // see too few of them.
  if (options.causal && in.q.s != in.k.s)
    return own(
        "cuDNN's causal mask begins at the first key here, and --cp-comm-type p2p or all_gather "
        "with a window gives keys before that; a2a is fast");
  if (options.window_left >= 0 && !options.causal)
    return own("cuDNN has no window without a causal mask here");
  if (in.max_queries() == 1 || in.max_keys() == 1)
    return own("cuDNN's backward refuses a single position");
  if (in.packed() && (q.d % 16 != 0 || in.v.d % 16 != 0))
    return own("cuDNN takes packed heads in multiples of 16 only");
  if (pass == AttentionPass::backward && q.device().runtime().deterministic()) {
    if (in.packed()) return own("cuDNN's deterministic backward of packed documents has no bound");
    if (deterministic_chunk(in).sequences == 0)
      return own("cuDNN's deterministic backward would need over 2 GiB for the heads of one key");
  }
#ifdef PHX_HAVE_CUDA
  if (q.device().kind() == DeviceKind::cuda && !cuda::trusts_cudnn(in, options, pass))
    return own("this version of cuDNN is not trusted with it");
#endif
  return {};
}

int64_t own_attention_workspace_bytes(const AttentionInputs& in, AttentionPass pass) {
  // delta [b, n, sq] in f32
  return pass == AttentionPass::forward ? 0 : in.q.b * in.q.n * in.q.s * 4;
}

int64_t packed_index_bytes(int64_t tokens) {
  // Lengths in i32, and in i64 where each of up to nine tensors' sequences begin, and end.
  return round_up(tokens * 4 + 9 * (tokens + 1) * 8, 256);
}

int64_t packed_gradient_bytes(const AttentionInputs& in, AttentionPass pass) {
  if (!in.packed() || pass == AttentionPass::forward || in.q.n == in.k.n) return 0;
  return 4 * round_up(in.k.s * in.k.n * in.k.d * size_of(in.k.dtype()), 256);
}

const char* attention_backend_name(const AttentionInputs& in, const AttentionOptions& options,
                                   AttentionPass pass) {
  if (in.q.device().target() == DeviceKind::cpu) return "cpu";
  switch (choose_cuda_attention(in, options, pass).which) {
    case CudaAttention::cudnn:
      return "cuDNN";
    case CudaAttention::products:
      return "products";
    case CudaAttention::own:
      break;
  }
  return "own";
}

int64_t attention_workspace_bytes(const AttentionInputs& in, const AttentionOptions& options,
                                  [[maybe_unused]] const HeadView& o) {
  constexpr AttentionPass kPass = AttentionPass::forward;
  if (in.q.device().target() == DeviceKind::cpu) return cpu::attention_workspace_bytes(in, kPass);
  const AttentionChoice choice = choose_cuda_attention(in, options, kPass);
  if (choice == CudaAttention::own) return own_attention_workspace_bytes(in, kPass);
  if (choice == CudaAttention::products) return product_workspace_bytes(in, kPass);
#ifdef PHX_HAVE_CUDA
  if (in.q.device().kind() == DeviceKind::cuda)
    return cuda::cudnn_attention_workspace_bytes(in, options, o);
#endif
  return meta::cudnn_attention_workspace_bytes(in, kPass);
}

int64_t attention_backward_workspace_bytes(const AttentionInputs& in,
                                           const AttentionOptions& options,
                                           [[maybe_unused]] const HeadView& o,
                                           [[maybe_unused]] const HeadView& d_o,
                                           [[maybe_unused]] const AttentionGradients& grads) {
  constexpr AttentionPass kPass = AttentionPass::backward;
  if (in.q.device().target() == DeviceKind::cpu) return cpu::attention_workspace_bytes(in, kPass);
  const AttentionChoice choice = choose_cuda_attention(in, options, kPass);
  if (choice == CudaAttention::own) return own_attention_workspace_bytes(in, kPass);
  if (choice == CudaAttention::products) return product_workspace_bytes(in, kPass);
#ifdef PHX_HAVE_CUDA
  if (in.q.device().kind() == DeviceKind::cuda)
    return cuda::cudnn_attention_backward_workspace_bytes(in, options, o, d_o, grads);
#endif
  return meta::cudnn_attention_workspace_bytes(in, kPass);
}

void attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
               const HeadView& o, Tensor& lse) {
  PHX_DISPATCH(in.q.device(), attention, in, options, workspace, o, lse);
}

void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        Tensor& workspace, const AttentionGradients& grads) {
  PHX_DISPATCH(in.q.device(), attention_backward, in, options, o, lse, d_o, workspace, grads);
}

void attention(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
               Tensor& lse) {
  check_attention(in, options);
  const HeadView& q = in.q;
  check_view("o", o, {q.s, q.b, q.n, in.v.d}, q.dtype());
  PHX_CHECK(lse.shape() == Shape({q.b, q.n, q.s}) && lse.dtype() == acc_dtype(q.dtype()),
            "attention: lse should be ", Shape({q.b, q.n, q.s}), " in ", acc_dtype(q.dtype()),
            ", but it is ", lse.shape(), " in ", lse.dtype());
  if (q.s * q.b == 0) return;
  if (in.place && q.device().target() == DeviceKind::cuda) {
    const PlainAttention plain = plainly(in, options);
    return attention(plain.in, plain.options, o, lse);
  }
  q.device().runtime().extension<AttentionUse>().note(in, options, AttentionPass::forward);
  Tensor workspace = make_workspace(in, options, AttentionPass::forward,
                                    attention_workspace_bytes(in, options, o));
  attention(in, options, workspace, o, lse);
}

void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        const AttentionGradients& grads) {
  check_attention(in, options);
  const HeadView &q = in.q, &k = in.k;
  check_view("o", o, {q.s, q.b, q.n, in.v.d}, q.dtype());
  check_view("do", d_o, {q.s, q.b, q.n, in.v.d}, q.dtype());
  check_view("dq", grads.dq, {q.s, q.b, q.n, q.d}, q.dtype());
  check_view("dk", grads.dk, {k.s, k.b, k.n, k.d}, q.dtype());
  check_view("dv", grads.dv, {k.s, k.b, k.n, in.v.d}, q.dtype());
  if (q.s * q.b == 0) return;
  if (in.place && q.device().target() == DeviceKind::cuda) {
    const PlainAttention plain = plainly(in, options);
    return attention_backward(plain.in, plain.options, o, lse, d_o, grads);
  }
  q.device().runtime().extension<AttentionUse>().note(in, options, AttentionPass::backward);
  Tensor workspace = make_workspace(in, options, AttentionPass::backward,
                                    attention_backward_workspace_bytes(in, options, o, d_o, grads));
  attention_backward(in, options, o, lse, d_o, workspace, grads);
}

}  // namespace phx::kernels
