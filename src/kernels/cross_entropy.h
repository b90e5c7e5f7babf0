// Softmax cross-entropy over rows of logits, and its gradient in the logits' own memory:
//   z' = cap * tanh(z / cap) if there is a softcap, else z
//   loss_i = log sum_j exp(z'_ij) - z'_i,label      dz_ij = (softmax_ij - onehot_ij) * dz'/dz *
//   weight_i
// Split so that the vocabulary may be cut over ranks: each rank takes the statistics of its
// columns, the statistics are combined, and the gradient needs the combined log-sum-exp only.
//
// Logits are [rows, columns] in any type one computes with; arithmetic is in acc_dtype. Columns
// past the vocabulary are padding: they count as -inf and get a zero gradient. A label that is
// neither a class nor ignore_index makes the row's loss and gradient NaN.
#pragma once

#include <cmath>

#include "phalanx/core/autograd.h"
#include "phalanx/core/host_device.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct CrossEntropyOptions {
  int64_t vocab = 0;            // classes of the whole vocabulary, without padding
  double logit_softcap = 0;     // 0: none
  int64_t ignore_index = -100;  // rows with this label: zero loss, zero gradient
  int64_t first_class = 0;      // the class of column 0
};

// How many of `columns` are classes; the others are padding.
inline int64_t num_classes(int64_t columns, const CrossEntropyOptions& options) {
  const int64_t left = options.vocab - options.first_class;
  return left < 0 ? 0 : left < columns ? left : columns;
}

// What a row's gradient is multiplied by: the product of those that are defined.
struct RowWeights {
  Tensor mask = {};   // [rows] in acc_dtype
  Tensor scale = {};  // [1] in acc_dtype
  Tensor dloss = {};  // [1] in acc_dtype
};

// logits [rows, columns]; labels [rows] i64 or i32; statistics [rows, 3] in acc_dtype: the largest
// z', the sum of exp(z' - largest), and the label's z' (0 if its class is not among the columns).
PHX_KERNEL(void, cross_entropy_statistics,
           (const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options,
            Tensor& statistics))

// statistics [ranks * rows, 3]: those of the ranks that share the vocabulary, one after the other,
// together all of it; lse, losses [rows] in acc_dtype.
PHX_KERNEL(void, cross_entropy_losses,
           (const Tensor& statistics, const Tensor& labels, const CrossEntropyOptions& options,
            Tensor& lse, Tensor& losses))

// logits [rows, columns] become their gradient.
PHX_KERNEL(void, cross_entropy_gradient,
           (Tensor & logits, const Tensor& labels, const Tensor& lse, const RowWeights& weights,
            const CrossEntropyOptions& options))

// The three at once, for a vocabulary in one piece: each row is read a second time while it is
// still in cache.
PHX_KERNEL(void, cross_entropy_with_gradient,
           (Tensor & logits, const Tensor& labels, const RowWeights& weights,
            const CrossEntropyOptions& options, Tensor& losses))

// sum [1] = sum of losses [t] * mask [t] (undefined: 1), added up in f64 in a fixed order. Rows
// whose mask is 0 do not count, whatever their loss.
PHX_KERNEL(void, masked_sum, (const Tensor& losses, const Tensor& mask, Tensor& sum))

// logits = cap * tanh(logits / cap), in place.
PHX_KERNEL(void, softcap, (Tensor & logits, double cap))

// Row statistics of columns a and b together.
template <class Acc>
struct RowStatistics {
  Acc largest, sum, target;
};
template <class Acc>
PHX_HD RowStatistics<Acc> combine(const RowStatistics<Acc>& a, const RowStatistics<Acc>& b) {
  const Acc largest = a.largest > b.largest ? a.largest : b.largest;
  return {largest, a.sum * std::exp(a.largest - largest) + b.sum * std::exp(b.largest - largest),
          a.target + b.target};
}
// Of all ranks, from statistics [ranks * rows, 3], in rank order: the same on every rank.
template <class Acc>
PHX_HD RowStatistics<Acc> row_of_all_ranks(const Acc* statistics, int64_t rows, int64_t ranks,
                                           int64_t row) {
  const Acc* s = statistics + row * 3;
  RowStatistics<Acc> all{s[0], s[1], s[2]};
  for (int64_t rank = 1; rank < ranks; ++rank) {
    s += rows * 3;
    all = combine(all, {s[0], s[1], s[2]});
  }
  return all;
}

}  // namespace phx::kernels
