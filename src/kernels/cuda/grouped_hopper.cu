// Grouped products on Hopper (grouped_kernel.cuh): which products it takes, and its launch.
#include <algorithm>
#include <cstring>

#include "phalanx/core/cuda/device_code.h"
#include "phalanx/kernels/cuda/grouped.h"
#include "phalanx/kernels/cuda/grouped_kernel.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/tensor_map.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;
using namespace grouped;

// Whether this GPU and the code that we have for it know these instructions.
bool on_hopper() {
  static const bool compiled = std::strstr(compiled_archs(), "90a") != nullptr;
  int device = 0, major = 0, minor = 0;
  PHX_CUDA_CHECK(cudaGetDevice(&device));
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return compiled && major == 9 && minor == 0;
}

bool fits(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& offsets) {
  const auto aligned = [](const Tensor& x) { return vectorizable(x.dim(-1), x); };
  return (a.dtype() == DType::bf16 || a.dtype() == DType::f16) && b.dtype() == a.dtype() &&
         aligned(a) && aligned(b) && aligned(c) && c.dim(-1) % 8 == 0 &&
         offsets.numel() - 1 <= kMostGroups && on_hopper();
}

template <class T, class Out, Grouped kProduct, int kCluster>
void launch_clusters(const CUtensorMap& a, const CUtensorMap& b, const GroupedShape<Out>& shape,
                     cudaStream_t stream) {
  const auto kernel = grouped_kernel<T, Out, kProduct, kCluster>;
  int device = 0, processors = 0;
  PHX_CUDA_CHECK(cudaGetDevice(&device));
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  PHX_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      shared_bytes(kMostGroups)));
  cudaLaunchAttribute cluster{.id = cudaLaunchAttributeClusterDimension};
  cluster.val.clusterDim.x = kCluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  const cudaLaunchConfig_t config{.gridDim = dim3(unsigned(processors / kCluster * kCluster)),
                                  .blockDim = dim3(kThreads),
                                  .dynamicSmemBytes = size_t(shared_bytes(shape.experts)),
                                  .stream = stream,
                                  .attrs = &cluster,
                                  .numAttrs = kCluster > 1 ? 1u : 0u};
  PHX_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a, b, shape));
}

template <class T, class Out, Grouped kProduct>
void launch(const CUtensorMap& a, const CUtensorMap& b, GroupedShape<Out> shape,
            const HopperTuning& tuning, cudaStream_t stream) {
  shape.lead = std::clamp(tuning.lead, 0, kStages - 1);
  shape.block_m = std::max(1, tuning.block_m / tuning.cluster);
  if (tuning.cluster == 2)
    launch_clusters<T, Out, kProduct, 2>(a, b, shape, stream);
  else
    launch_clusters<T, Out, kProduct, 1>(a, b, shape, stream);
}

// f<T>() for bf16 or f16.
template <class F>
void for_half(DType dtype, F&& f) {
  if (dtype == DType::bf16)
    f.template operator()<bf16>();
  else
    f.template operator()<f16>();
}

}  // namespace

bool hopper_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                           const Sink& c, const HopperTuning& tuning) {
  if (c.tensor.numel() == 0) return true;
  if (!fits(a, w, c.tensor, offsets) || c.tensor.dtype() != a.dtype()) return false;
  const int64_t e = w.dim(0), rows = w.dim(1), columns = w.dim(2);
  const CUtensorMap map_a = tensor_map(a.raw(), a.dtype(), {a.dim(-1), a.dim(0)}, {kTileK, kTileM});
  const CUtensorMap map_w = tensor_map(w.raw(), w.dtype(), {columns, rows, e},
                                       {64, transposed ? kTileK : kTileN / tuning.cluster, 1});
  for_half(a.dtype(), [&]<class T>() {
    const GroupedShape<T> shape{.offsets = offsets.data<int32_t>(),
                                .experts = narrow<int>(e),
                                .m = 0,
                                .n = narrow<int>(c.tensor.dim(-1)),
                                .k = narrow<int>(a.dim(-1)),
                                .c = c.tensor.data<T>(),
                                .beta = c.beta};
    if (transposed)
      launch<T, T, Grouped::rows_transposed>(map_a, map_w, shape, tuning, stream_of(a));
    else
      launch<T, T, Grouped::rows>(map_a, map_w, shape, tuning, stream_of(a));
  });
  return true;
}

bool hopper_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                   const Sink& dw, const HopperTuning& tuning) {
  if (dw.tensor.numel() == 0) return true;
  const Tensor& c = dw.tensor;
  if (dy.numel() == 0 || !fits(dy, x, c, offsets) ||
      (c.dtype() != dy.dtype() && c.dtype() != DType::f32))
    return false;
  const auto map_of = [](const Tensor& of) {
    return tensor_map(of.raw(), of.dtype(), {of.dim(-1), of.dim(0)}, {64, kTileK});
  };
  const CUtensorMap map_dy = map_of(dy), map_x = map_of(x);
  for_half(dy.dtype(), [&]<class T>() {
    const auto run = [&]<class Out>() {
      launch<T, Out, Grouped::weights>(map_dy, map_x,
                                       GroupedShape<Out>{.offsets = offsets.data<int32_t>(),
                                                         .experts = narrow<int>(c.dim(0)),
                                                         .m = narrow<int>(c.dim(1)),
                                                         .n = narrow<int>(c.dim(2)),
                                                         .k = 0,
                                                         .c = c.data<Out>(),
                                                         .beta = dw.beta},
                                       tuning, stream_of(dy));
    };
    if (c.dtype() == DType::f32)
      run.template operator()<float>();
    else
      run.template operator()<T>();
  });
  return true;
}

}  // namespace phx::kernels::cuda
