#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/column_sum.h"
#include "phalanx/kernels/cuda/norm_rows.cuh"
#include "phalanx/kernels/cuda/norm_rows_backward.cuh"
#include "phalanx/kernels/layer_norm.h"

namespace phx::kernels::cuda {

using phx::cuda::stream_of;
using phx::cuda::vectorizable;

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& bias, const NormOptions& options,
                Tensor& y, Tensor& mean, Tensor& rstd) {
  const int64_t h = x.dim(-1);
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    const NormForward<T> a{.x = x.data<T>(),
                           .w = w.data<T>(),
                           .bias = bias.defined() ? bias.data<T>() : nullptr,
                           .y = y.data<T>(),
                           .mean = mean.data<float>(),
                           .rstd = rstd.data<float>(),
                           .rows = x.numel() / h,
                           .h = narrow<int>(h),
                           .eps = float(options.eps),
                           .shift = options.zero_centred ? 1.f : 0.f};
    launch_norm<true>(a, vectorizable(h, x, w, bias, y), stream_of(x));
  });
}

void layer_norm_backward(const LayerNormSaved& saved, const Tensor& dy, const NormOptions& options,
                         Tensor& workspace, const LayerNormSinks& sinks) {
  const int64_t h = dy.dim(-1), blocks = workspace.dim(1);
  const Tensor dw = workspace.rows(0, 1).reshape({blocks, h});
  const Tensor dbias = workspace.rows(1, 1).reshape({blocks, h});
  for_gpu_dtype(dy.dtype(), [&]<class T>() {
    const NormBackward<T> a{.x = saved.x.data<T>(),
                            .w = saved.w.data<T>(),
                            .dy = dy.data<T>(),
                            .mean = saved.mean.data<float>(),
                            .rstd = saved.rstd.data<float>(),
                            .dx = sinks.dx.tensor.data<T>(),
                            .keep = sinks.dx.beta != 0.f,
                            .dw = dw.data<float>(),
                            .dbias = dbias.data<float>(),
                            .rows = dy.numel() / h,
                            .h = narrow<int>(h),
                            .shift = options.zero_centred ? 1.f : 0.f};
    launch_norm_backward<true>(a, blocks, vectorizable(h, saved.x, saved.w, dy, sinks.dx.tensor),
                               stream_of(dy));
  });
  add_row_blocks(dw, sinks.dw);
  if (sinks.dbias.tensor.defined()) add_row_blocks(dbias, sinks.dbias);
}

}  // namespace phx::kernels::cuda
