// The LM head and its cross-entropy as one op that works on a chunk of rows at a time, so that the
// logits [t, v] never exist whole:
//   logits = x w^T, capped if asked      loss_sum = sum_i mask_i * (lse(logits_i) - logits_i,label)
//
// The backward propagates the gradient of grad_scale * loss_sum (loss_sum itself is not scaled).
// There are two ways to it:
// - grad_scale is given, and w is a leaf of the graph (a parameter) or needs no gradient. While a
//   chunk's logits are there, the forward turns them into their gradient, adds the weight's
//   gradient to w's sink and keeps dx [t, h]; nothing is computed twice. The backward hands dx on,
//   says that w's gradient is formed, and does not look at the gradient that arrives: it must be
//   started with 1 (checked on cpu).
// - otherwise only the log-sum-exp [t] is kept, and the backward computes the logits again, chunk
//   by chunk: a third more multiplications. The gradient that arrives may be anything.
// So training counts its tokens first and gives loss_scale / N as grad_scale.
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/core/tensor.h"

namespace phx {

struct LmLossOptions {
  int64_t vocab = 0;  // classes of all ranks; rows of w past them are padding. 0: all rows of w
  double logit_softcap = 0;                // cap * tanh(logits / cap); 0: none
  int64_t ignore_index = -100;             // rows with this label have no loss and no gradient
  int64_t chunk_bytes = int64_t{1} << 30;  // of logits at a time, at most
  // With the vocabulary cut over ranks: w has the classes from first_class on, and the statistics
  // of a chunk's rows are exchanged once. The gradient of x is then this rank's summand.
  int64_t first_class = 0;
  Communicator* class_ranks = nullptr;
};

struct LmLoss {
  Tensor loss_sum;      // [1] in acc_dtype(x): differentiable in x and w
  Tensor token_losses;  // [t] in acc_dtype(x), before the mask; 0 where ignored; without graph
};

// x [t, h]; w [v, h], v at least the vocabulary; labels [t] i64 or i32; loss_mask [t] and
// grad_scale [1] in acc_dtype(x), or undefined for 1.
LmLoss lm_loss(const Tensor& x, const Tensor& w, const Tensor& labels, const Tensor& loss_mask,
               const Tensor& grad_scale, const LmLossOptions& options = {});

// [t, h], [v, h] -> [t, vocab], in x's dtype: the logits as lm_loss sees them. No gradient.
Tensor lm_logits(const Tensor& x, const Tensor& w, const LmLossOptions& options = {});

}  // namespace phx
