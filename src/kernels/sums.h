// Sums in a fixed order: blocks cut by shape and device kind alone, then put together the same way
// every time.
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// x [.., n] -> sums [n]: over all dimensions but the last. A bias's gradient.
void column_sums(const Tensor& x, const Sink& sums);
PHX_KERNEL(void, column_sums,
           (const Tensor& x, Tensor& workspace, const Sink& sums))  // [blocks, n]

// All elements of x -> total [1]; acc_dtype(x) or f64. Added up in f64, whatever x is.
void sum(const Tensor& x, const Sink& total);
void sum_of_squares(const Tensor& x, const Sink& total);  // of gradients: the norm before its root
// The same with memory for the sums of up to `elements`: f64 [blocks].
Tensor sum_workspace(int64_t elements, Device device);
void sum_of_squares(const Tensor& x, const Tensor& workspace, const Sink& total);

enum class Term : uint8_t { value, square };
PHX_KERNEL(void, sum_all,
           (const Tensor& x, Term term, Tensor& workspace, const Sink& total))  // f64 [blocks]

}  // namespace phx::kernels
