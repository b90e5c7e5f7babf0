// RMSNorm of single heads inside of a packed tensor: heads [0, n) with one weight, heads [n, n + g)
// with another, the rest (v) copied. Qwen3 and Gemma-3 normalise q and k this way.
#pragma once

#include "phalanx/kernels/rms_norm.h"

namespace phx::kernels {

struct PackedHeads {
  int64_t n = 0, g = 0, d = 0;  // query heads, key (and value) heads, head size
  int64_t total() const { return n + 2 * g; }
};

// x, y [.., (n + 2g) d]; wq, wk [d]; rstd [.., n + g] in acc_dtype(x).
PHX_KERNEL(void, head_norm,
           (const Tensor& x, const Tensor& wq, const Tensor& wk, const PackedHeads& heads,
            const NormOptions& options, Tensor& y, Tensor& rstd))

// dx as x; dwq, dwk [d]. workspace [blocks, 2, d]: each block of rows adds up its own.
PHX_KERNEL(void, head_norm_backward,
           (const Tensor& x, const Tensor& wq, const Tensor& wk, const Tensor& rstd,
            const Tensor& dy, const PackedHeads& heads, const NormOptions& options,
            Tensor& workspace, Tensor& dx, const Sink& dwq, const Sink& dwk))

Shape head_norm_workspace(const Tensor& x, const PackedHeads& heads);

}  // namespace phx::kernels
