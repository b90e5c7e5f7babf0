#include "phalanx/kernels/cuda/tensor_map.h"

#include <algorithm>

#include "phalanx/core/cuda/check.h"

namespace phx::cuda {

namespace {

// The driver's function, found at run time: the program starts without a driver, too.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    PHX_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                    cudaEnableDefault, &result));
    PHX_CHECK(result == cudaDriverEntryPointSuccess,
              "this driver has no cuTensorMapEncodeTiled; version 525 or newer has it");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return function;
}

}  // namespace

CUtensorMap tensor_map(const void* data, DType dtype, std::initializer_list<int64_t> dims,
                       std::initializer_list<int> box) {
  constexpr int kMost = 5;
  const auto rank = cuuint32_t(dims.size());
  PHX_ASSERT(rank <= kMost && rank == box.size(), "a tensor map of ", rank, " dimensions");
  cuuint64_t sizes[kMost], strides[kMost];  // strides of all but the innermost, in bytes
  cuuint32_t boxes[kMost], steps[kMost];
  std::copy(dims.begin(), dims.end(), sizes);
  std::copy(box.begin(), box.end(), boxes);
  std::fill_n(steps, kMost, 1u);
  strides[0] = sizes[0] * 2;
  for (cuuint32_t i = 1; i + 1 < rank; ++i) strides[i] = strides[i - 1] * sizes[i];
  CUtensorMap map;
  const CUresult result = encode_function()(
      &map,
      dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      rank, const_cast<void*>(data), sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  PHX_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled refuses a tensor of ", rank,
            " dimensions, rows of ", int64_t(sizes[0]), " numbers: error ", int(result));
  return map;
}

}  // namespace phx::cuda
