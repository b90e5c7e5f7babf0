#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/column_sum.h"
#include "phalanx/kernels/cuda/norm_rows.cuh"
#include "phalanx/kernels/cuda/norm_rows_backward.cuh"
#include "phalanx/kernels/rms_norm.h"

namespace phx::kernels::cuda {

using phx::cuda::stream_of;
using phx::cuda::vectorizable;

void rms_norm(const Tensor& x, const Tensor& w, const NormOptions& options, Tensor& y,
              Tensor& rstd) {
  const int64_t h = x.dim(-1);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    const NormForward<T> a{.x = x.data<T>(),
                           .w = w.data<T>(),
                           .bias = nullptr,
                           .y = y.data<T>(),
                           .mean = nullptr,
                           .rstd = rstd.data<float>(),
                           .rows = x.numel() / h,
                           .h = narrow<int>(h),
                           .eps = float(options.eps),
                           .shift = options.zero_centred ? 1.f : 0.f};
    launch_norm<false>(a, vectorizable(h, x, w, y), stream_of(x));
  });
}

void rms_norm_backward(const Tensor& x, const Tensor& w, const Tensor& rstd, const Tensor& dy,
                       const NormOptions& options, Tensor& workspace, const Sink& dx,
                       const Sink& dw) {
  const int64_t h = x.dim(-1);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    const NormBackward<T> a{.x = x.data<T>(),
                            .w = w.data<T>(),
                            .dy = dy.data<T>(),
                            .mean = nullptr,
                            .rstd = rstd.data<float>(),
                            .dx = dx.tensor.data<T>(),
                            .keep = dx.beta != 0.f,
                            .dw = workspace.data<float>(),
                            .dbias = nullptr,
                            .rows = x.numel() / h,
                            .h = narrow<int>(h),
                            .shift = options.zero_centred ? 1.f : 0.f};
    launch_norm_backward<false>(a, workspace.dim(0), vectorizable(h, x, w, dy, dx.tensor),
                                stream_of(x));
  });
  add_row_blocks(workspace, dw);
}

}  // namespace phx::kernels::cuda
