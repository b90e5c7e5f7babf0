// c = activation(alpha * op(a) op(b) + beta * c + bias), or with another matrix in place of the old
// c (`add`): matrices by OpenBLAS on cpu, by cuBLASLt
// on cuda. 16-bit operands multiply and add in f32 and are rounded once, when c is stored; f32 is
// full f32, never TF32. (On cuda the library may round a product before it adds a bias or c, too.)
//
// The bits of c depend on shapes, dtypes and the machine alone, not on the number of threads: the
// output is cut into tiles by shape, and each tile is one call to the library.
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

enum class MatmulActivation : uint8_t { none, gelu };  // gelu: the tanh form

struct MatmulOptions {
  bool transpose_a = false;  // a is stored [k, m]
  bool transpose_b = false;  // b is stored [n, k]: a weight [out, in]
  float alpha = 1.f;
  Tensor bias = {};  // [n] in c's dtype, or undefined
  MatmulActivation activation = MatmulActivation::none;
  Tensor add = {};  // like c: c = add + the product; then there is no beta and no activation
};

// a [m, k], b [k, n] (transposed if the options say so) -> c [m, n]. All dimensions but the last
// are taken as one: x [s, b, h] is a matrix [s * b, h]. a and b have one dtype; c has the same or
// acc_dtype of it (main gradients).
void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options, const Sink& c);

// a [g, m, k], b [g, k, n] -> c [g, m, n]: g products.
void matmul_batched(const Tensor& a, const Tensor& b, const MatmulOptions& options, const Sink& c);

// cuBLASLt's scratch memory: one for the compute stream, whose products run one after the other. A
// meta device that stands for cuda holds it too.
Tensor matmul_workspace(Runtime& runtime);

// What the devices get to see: the extents, read off and checked by the fronts above.
struct MatmulProblem {
  int64_t batch = 1, m = 0, n = 0, k = 0;
};
PHX_KERNEL(void, matmul,
           (const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, Tensor& workspace, const Sink& c))

}  // namespace phx::kernels
