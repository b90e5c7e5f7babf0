#include "phalanx/kernels/cpu/gemm.h"

#include <cblas.h>

#include <algorithm>

#include "phalanx/base/math.h"

#ifdef PHX_HAVE_DNNL
#include <dnnl.h>
extern "C" void omp_set_num_threads(int);
#endif

namespace phx::kernels::cpu {

namespace {

// A stride is at least 1 to the libraries, even where there is nothing to step over.
template <class Int>
Int stride(int64_t s) {
  return narrow<Int>(std::max<int64_t>(s, 1));
}

// The libraries' own threads would spin and fight with ours.
void keep_blas_to_this_thread() {
  static const bool once = (openblas_set_num_threads(1), true);
  (void)once;
}

CBLAS_TRANSPOSE op(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, double alpha, const GemmOperand<double>& a,
          const GemmOperand<double>& b, double beta, double* c, int64_t c_stride) {
  keep_blas_to_this_thread();
  cblas_dgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow<blasint>(m),
              narrow<blasint>(n), narrow<blasint>(k), alpha, a.data, stride<blasint>(a.stride),
              b.data, stride<blasint>(b.stride), beta, c, stride<blasint>(c_stride));
}

#ifdef PHX_HAVE_DNNL

void gemm(int64_t m, int64_t n, int64_t k, float alpha, const GemmOperand<float>& a,
          const GemmOperand<float>& b, float beta, float* c, int64_t c_stride) {
  omp_set_num_threads(1);  // of this thread's regions; cheap: it sets a variable
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                 stride<dnnl_dim_t>(a.stride), b.data, stride<dnnl_dim_t>(b.stride), beta, c,
                 stride<dnnl_dim_t>(c_stride));
  PHX_ASSERT(status == dnnl_success, "dnnl_sgemm of ", m, " x ", n, " x ", k,
             " failed: ", int(status));
}

#else

void gemm(int64_t m, int64_t n, int64_t k, float alpha, const GemmOperand<float>& a,
          const GemmOperand<float>& b, float beta, float* c, int64_t c_stride) {
  keep_blas_to_this_thread();
  cblas_sgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow<blasint>(m),
              narrow<blasint>(n), narrow<blasint>(k), alpha, a.data, stride<blasint>(a.stride),
              b.data, stride<blasint>(b.stride), beta, c, stride<blasint>(c_stride));
}

#endif

}  // namespace phx::kernels::cpu
