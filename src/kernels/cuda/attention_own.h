// Our own attention on the GPU: f32, any head size, dropout, softcap, windows, packed sequences,
// and a backward without atomics, so that the same inputs give the same bytes every time.
#pragma once

#include <memory>

#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/attention_products.h"

namespace phx::kernels::cuda {

// Throws if the GPU has less shared memory for a block.
void check_shared_memory(const AttentionInputs& in, int bytes);

void own_attention(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
                   Tensor& lse);
void own_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                            const HeadView& o, const Tensor& lse, const HeadView& d_o,
                            Tensor& workspace, const AttentionGradients& grads);

// By products (kernels/attention_products.h).
void product_attention(const AttentionInputs& in, const AttentionOptions& options,
                       Tensor& workspace, const HeadView& o, Tensor& lse,
                       const ProductSizes& sizes = {});
void product_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                                const HeadView& o, const Tensor& lse, const HeadView& d_o,
                                Tensor& workspace, const AttentionGradients& grads,
                                const ProductSizes& sizes = {});
// What they run on. lse [b, n, sq] is written by the forward and read by the backward.
std::unique_ptr<ProductDevice> product_device(const AttentionInputs& in,
                                              const AttentionOptions& options, const Tensor& lse);

// cuDNN's, see attention_cudnn.cpp and attention_cudnn_graph.cpp.
int64_t cudnn_version();  // 91400 is 9.14.0
// For tests of the guards: plans that are made from now on compute something else.
void plant_wrong_plans(Runtime& runtime);
void cudnn_attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
                     const HeadView& o, Tensor& lse);
void cudnn_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                              const HeadView& o, const Tensor& lse, const HeadView& d_o,
                              Tensor& workspace, const AttentionGradients& grads);

}  // namespace phx::kernels::cuda
