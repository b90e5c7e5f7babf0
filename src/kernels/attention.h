// Attention: o = softmax(mask(softcap(scale q k^T))) v, forward and backward, on head views, so
// that packed QKV needs no copies. Nothing of size s x s is ever stored: memory is linear in the
// sequence.
//
//   q [sq, b, n, d], k [sk, b, g, d], n % g == 0: query head i uses key head i / (n / g)
//   v [sk, b, g, dv], o [sq, b, n, dv], dv <= d: a value head may be narrower than a query head
//   lse  [b, n, sq] in acc_dtype: the natural logarithm of the sum of exp of the final scores
//
// Query i stands at position i + sk - sq: with sk > sq the queries are the last ones (KV cache).
// Packed sequences of various lengths have b == 1, sq == sk == t tokens and cu_seqlens; each
// attends to itself only.
//
// With a place q and k are parts of longer sequences, as a rank of context parallelism has them. A
// query that sees none of these keys has o = 0 or any average of them, and an lse below -1e29: what
// it has of other keys outweighs it (kernels/attention_merge.h).
#pragma once

#include <algorithm>
#include <optional>

#include "phalanx/core/head_view.h"
#include "phalanx/core/sample_place.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// Which dropout decision this is. A mask element belongs to global indices (sample, head, query's
// position in the sample, key's position in the sequence), so it does not depend on layout, device
// or blocking.
struct AttentionRandom {
  uint64_t seed = 0, site = 0, step = 0;
  SamplePlace samples = {};
  int64_t first_head = 0;  // of local head 0
};

struct AttentionOptions {
  bool causal = true;
  double scale = 0;      // of q . k; 0: 1 / sqrt(d)
  int window_left = -1;  // earlier keys that a query sees beside its own position; -1: all
  double softcap = 0;    // s -> softcap * tanh(s / softcap) on scaled scores; 0: none
  double dropout = 0;    // probability of dropping a softmax weight
  AttentionRandom random = {};
};

// Where the first query and the first key stand in the whole sequence; packed: in the row of all
// sequences, which cu_seqlens describes.
struct AttentionPlace {
  int64_t query = 0, key = 0;
};

struct AttentionInputs {
  HeadView q, k, v;
  Tensor cu_seqlens{};     // i32 [num_seqs + 1], from 0 to t; undefined: not packed
  int64_t max_seqlen = 0;  // of the packed sequences
  std::optional<AttentionPlace> place = {};
  bool packed() const { return cu_seqlens.defined(); }
  int64_t num_seqs() const { return packed() ? cu_seqlens.dim(0) - 1 : q.b; }
  int64_t max_queries() const { return packed() ? std::min(max_seqlen, q.s) : q.s; }
  int64_t max_keys() const { return packed() ? std::min(max_seqlen, k.s) : k.s; }
  // Of query 0, counted from key 0.
  int64_t first_position() const { return place ? place->query - place->key : k.s - q.s; }
};

inline constexpr int64_t kMaxHeadSize = 256;

// On GPUs a place is known only where the queries are the last ones of the keys that they see, or
// see all of them: whether that is so. Then the same without a place.
struct PlainAttention {
  AttentionInputs in;
  AttentionOptions options;
};
std::optional<PlainAttention> without_place(const AttentionInputs& in,
                                            const AttentionOptions& options);

// Throws unless the shapes, types and options fit together.
void check_attention(const AttentionInputs& in, const AttentionOptions& options);

enum class AttentionPass { forward, backward };
// Who computes it: "cpu", "cuDNN", "products" or "own". On meta, of the target.
const char* attention_backend_name(const AttentionInputs& in, const AttentionOptions& options,
                                   AttentionPass pass);

// o and lse are overwritten. `workspace` is u8 of the bytes below, undefined if that is 0.
PHX_KERNEL(void, attention,
           (const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
            const HeadView& o, Tensor& lse))

// dq, dk, dv have the shapes of q, k, v, any strides, and are overwritten.
struct AttentionGradients {
  HeadView dq, dk, dv;
};
PHX_KERNEL(void, attention_backward,
           (const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
            const Tensor& lse, const HeadView& d_o, Tensor& workspace,
            const AttentionGradients& grads))

// Bytes of workspace: by shapes alone, but where cuDNN says what its plan needs. On meta the same
// as on the device that it stands for (cuDNN's by formula).
int64_t attention_workspace_bytes(const AttentionInputs& in, const AttentionOptions& options,
                                  const HeadView& o);
int64_t attention_backward_workspace_bytes(const AttentionInputs& in,
                                           const AttentionOptions& options, const HeadView& o,
                                           const HeadView& d_o, const AttentionGradients& grads);

// The common fronts: check, make the workspace, dispatch.
void attention(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
               Tensor& lse);
void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        const AttentionGradients& grads);

// --- what the versions share

// 1 / sqrt(d) where the options leave the scale open.
double attention_scale(const AttentionInputs& in, const AttentionOptions& options);

namespace cpu {
// The backward adds up dk and dv of a (sequence, key head) in `splits` parts, in order, so that a
// small batch still uses several threads. Depends on shapes only.
struct BackwardSplit {
  int64_t splits;  // parts a (sequence, key head)
  int64_t slots;   // accumulators dk and dv, [2, max_keys, padded d] each
};
BackwardSplit attention_backward_split(const AttentionInputs& in);
int64_t attention_workspace_bytes(const AttentionInputs& in, AttentionPass pass);
}  // namespace cpu

// On cuda: cuDNN where it can and is right; for a soft cap matrix products with our row kernels
// between them (kernels/attention_products.h); our own kernels elsewhere.
enum class CudaAttention { cudnn, products, own };
struct AttentionChoice {
  CudaAttention which = CudaAttention::cudnn;
  const char* why = nullptr;  // the reason against cuDNN
  bool operator==(CudaAttention other) const { return which == other; }
};
AttentionChoice choose_cuda_attention(const AttentionInputs& in, const AttentionOptions& options,
                                      AttentionPass pass);

// cuDNN's deterministic backward keeps the gradients of all scores it works on, in 16 bits. So it
// gets some sequences, or some heads of one, at a time: as many as stay within this many bytes.
inline constexpr int64_t kDeterministicScoreBytes = int64_t{2} << 30;
struct AttentionChunk {
  int64_t sequences = 0, key_heads = 0;  // both divide what there is; 0: not even one fits
};
AttentionChunk deterministic_chunk(const AttentionInputs& in);

int64_t own_attention_workspace_bytes(const AttentionInputs& in, AttentionPass pass);
// Beside its own workspace cuDNN gets, for packed sequences, what it is told of them (at most), and
// a place for dk and dv where query heads share key heads: it makes them for every query head, as
// far apart as tokens are in dk times the heads that share one, which within packed QKV would be
// several times what it takes. As much again is for copies of k and v, which older versions need.
int64_t packed_index_bytes(int64_t tokens);
int64_t packed_gradient_bytes(const AttentionInputs& in, AttentionPass pass);
namespace cuda {
// Whether cuDNN may be asked for such a problem (kernels/cuda/attention_trust.h).
bool trusts_cudnn(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass);
int64_t cudnn_attention_workspace_bytes(const AttentionInputs& in, const AttentionOptions& options,
                                        const HeadView& o);
int64_t cudnn_attention_backward_workspace_bytes(const AttentionInputs& in,
                                                 const AttentionOptions& options, const HeadView& o,
                                                 const HeadView& d_o,
                                                 const AttentionGradients& grads);
}  // namespace cuda
namespace meta {
int64_t cudnn_attention_workspace_bytes(const AttentionInputs& in, AttentionPass pass);
}  // namespace meta

}  // namespace phx::kernels
