// Attention as matrix products with row kernels between them: the GPU's way for a soft cap, with
// which cuDNN has no backward on Hopper. What is computed in which order stands in
// attention_products.cpp, for the GPU and for the meta device that plans its memory and tunes its
// products; how, in cuda/attention_products.cpp.
//
// Counted for one (query head, query, key) with d = dv = 256, T 16 bits wide:
//
//             products            FLOP    bytes written and read
//   forward   q k^T, p v          1024    scores 4 + 4, weights 2 + 2                        = 12
//   backward  q k^T, do v^T,      2560    scores 4 + 4, dp 4 + 4, weights 2 + 2, ds 2 + 2 x 2 = 26
//             p^T do, ds^T q, ds k
//
// 38 bytes are 9.5 ps at 4 TB/s, 3584 FLOP 6 ps at 600 TFLOP/s. Products and traffic overlap within
// a product only, so 12 to 14 ps are expected: 250 to 300 TFLOP/s. A causal sequence of 4096 in
// blocks of 512 computes 9/8 of the visible scores.
//
// Scores are f32: in bf16 a score of 20 would be off by 0.06, and its weight by 6%. f16 would do
// (0.008), but no product of the library takes bf16 to f16. dp is f32 because do . o, its mean
// under the weights, is subtracted from it.
#pragma once

#include <cstdint>

#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/gemm_problem.h"

namespace phx::kernels {

inline constexpr int64_t kProductBlock = 512;  // queries, or keys, of a block of scores
// Below that a block is so small that launches take longer than our own kernels.
inline constexpr int64_t kProductLeastQueries = 512, kProductLeastChannels = 64;
inline constexpr int64_t kProductMostKeys = 16384;  // that a row kernel holds in registers
// Tests and benchmarks choose others.
struct ProductSizes {
  // What scores and all that is made of them may take; so many key heads are computed at a time.
  int64_t bytes = int64_t{3} << 29;
  int64_t block = kProductBlock;  // a multiple of 8, 1024 at most
};

// Why this cannot be computed so, or had better not; null: it can.
const char* why_no_products(const AttentionInputs& in);

// Key heads that are computed at a time, of one sequence: a divisor of all. 0: not even one fits.
int64_t product_key_heads(const AttentionInputs& in, AttentionPass pass,
                          const ProductSizes& sizes = {});
int64_t product_workspace_bytes(const AttentionInputs& in, AttentionPass pass,
                                const ProductSizes& sizes = {});

// Heads of one sequence at an address: element (row, key head, head of its group) begins at
// row * stride_s + key head * stride_g + head * stride_h. In elements of the problem's type.
struct HeadRows {
  uintptr_t at = 0;
  int64_t stride_s = 0, stride_g = 0, stride_h = 0;
};

// Some rows of scores against some keys, for every key head of a chunk. Row r of a key head is
// query first_query + r / group of head r % group.
struct ScoreBlock {
  int64_t key_heads = 0, group = 0;
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
  uintptr_t scores = 0;  // f32 [key heads, queries * group, row]
  int64_t row = 0;       // a multiple of 8
  int64_t lse_head = 0;  // the row of lse [b * n, sq] that belongs to the first head
  int64_t rows() const { return queries * group; }
};

// What a device does for the schedule. All is enqueued in order.
class ProductDevice {
 public:
  virtual ~ProductDevice() = default;
  virtual void multiply(const GemmProblem& problem, uintptr_t a, uintptr_t b, uintptr_t c) = 0;
  // [rows, key heads, group, d] from one place to another.
  struct Extent {
    int64_t rows, key_heads, group, d;
  };
  virtual void copy_rows(const Extent& extent, const HeadRows& from, const HeadRows& to) = 0;
  virtual void zero_rows(const Extent& extent, const HeadRows& at) = 0;
  // Scores become weights of 16 bits in their place (a row is twice as long, counted in those), and
  // lse is written.
  virtual void softmax(const ScoreBlock& block) = 0;
  // delta f32 [key heads, rows, group] = do . o, and a copy of do unless `to` is 0.
  virtual void delta(const Extent& extent, const HeadRows& o, const HeadRows& d_o,
                     const HeadRows& to, uintptr_t delta) = 0;
  // The gradients of scores, and weights.
  struct Gradients {
    uintptr_t dp;       // f32, like the scores
    uintptr_t delta;    // f32 [key heads, all queries, group]
    uintptr_t weights;  // 16 bits, like the scores
    uintptr_t ds;       // 16 bits [key heads, all queries, group, ds_row], the whole chunk's
    int64_t ds_row;
  };
  virtual void differentiate(const ScoreBlock& block, const Gradients& gradients) = 0;
};

// `workspace` is the address of product_workspace_bytes.
void product_attention(ProductDevice& device, const AttentionInputs& in,
                       const AttentionOptions& options, const HeadView& o, uintptr_t workspace,
                       const ProductSizes& sizes = {});
void product_attention_backward(ProductDevice& device, const AttentionInputs& in,
                                const AttentionOptions& options, const HeadView& o,
                                const HeadView& d_o, const AttentionGradients& grads,
                                uintptr_t workspace, const ProductSizes& sizes = {});

}  // namespace phx::kernels
