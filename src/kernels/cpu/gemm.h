// One thread's matrix product by the library: c = alpha op(a) op(b) + beta c, row-major.
#pragma once

#include <cstdint>

namespace phx::kernels::cpu {

template <class T>
struct GemmOperand {
  const T* data;
  int64_t stride;  // between rows as stored
  bool transposed;
};

// c [m, n], rows c_stride apart. f64 by OpenBLAS; f32 by oneDNN where the build found it (its
// kernels are made for the processor at hand: on AVX-512 about a sixth faster), else by OpenBLAS
// too.
void gemm(int64_t m, int64_t n, int64_t k, double alpha, const GemmOperand<double>& a,
          const GemmOperand<double>& b, double beta, double* c, int64_t c_stride);
void gemm(int64_t m, int64_t n, int64_t k, float alpha, const GemmOperand<float>& a,
          const GemmOperand<float>& b, float beta, float* c, int64_t c_stride);

}  // namespace phx::kernels::cpu
