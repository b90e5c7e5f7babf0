// RMSNorm over the channels of all query heads together, and over those of all key heads, inside of
// a packed tensor: columns q | k | rest, of which the rest (v) is copied. OLMoE normalises q and k
// this way. Where ranks have a part of the heads each, sums over a row are added up over the ranks
// between two kernels.
#pragma once

#include "phalanx/kernels/rms_norm.h"

namespace phx::kernels {

struct WideParts {
  int64_t q = 0, k = 0;          // channels of this rank
  int64_t all_q = 0, all_k = 0;  // of all ranks together
};

// Below: x, y, dy, dx [.., width]; wq [q], wk [k]; sums and dots [rows, 2] in acc_dtype(x), of q
// and of k.

// Sums of squares of this rank's channels.
PHX_KERNEL(void, wide_norm_sums, (const Tensor& x, const WideParts& parts, Tensor& sums))

// With the sums over all ranks.
PHX_KERNEL(void, wide_norm,
           (const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& sums,
            const WideParts& parts, const NormOptions& options, Tensor& y))

// Sums of dy w x of this rank's channels.
PHX_KERNEL(void, wide_norm_dots,
           (const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& dy,
            const WideParts& parts, const NormOptions& options, Tensor& dots))

// With the dots over all ranks. workspace [blocks, q + k]: each block of rows adds up its own.
struct WideSums {
  Tensor sums, dots;
};
PHX_KERNEL(void, wide_norm_backward,
           (const Tensor& x, const Tensor& wq, const Tensor& wk, const WideSums& over_ranks,
            const Tensor& dy, const WideParts& parts, const NormOptions& options, Tensor& workspace,
            Tensor& dx, const Sink& dwq, const Sink& dwk))

Shape wide_norm_workspace(const Tensor& x, const WideParts& parts);

}  // namespace phx::kernels
