// What attention by products (kernels/attention_products.h) does between its products.
#pragma once

#include <cuda_runtime.h>

#include "phalanx/kernels/attention_products.h"

namespace phx::kernels::cuda {

struct ScoreOptions {
  DType dtype;  // of weights and gradients: 16 bits
  int64_t sq, sk;
  bool causal;
  int64_t window;  // -1: none
  double scale, softcap;
  float* lse;  // [b * n, sq]
};

void copy_head_rows(DType dtype, const ProductDevice::Extent& extent, const HeadRows& from,
                    const HeadRows& to, cudaStream_t stream);
void zero_head_rows(DType dtype, const ProductDevice::Extent& extent, const HeadRows& at,
                    cudaStream_t stream);
void softmax_scores(const ScoreBlock& block, const ScoreOptions& options, cudaStream_t stream);
void make_delta(DType dtype, const ProductDevice::Extent& extent, const HeadRows& o,
                const HeadRows& d_o, const HeadRows& to, uintptr_t delta, cudaStream_t stream);
void differentiate_scores(const ScoreBlock& block, const ProductDevice::Gradients& gradients,
                          const ScoreOptions& options, cudaStream_t stream);

}  // namespace phx::kernels::cuda
