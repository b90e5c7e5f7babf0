#include "phalanx/kernels/attention.h"

#include "phalanx/kernels/cuda/attention_own.h"

namespace phx::kernels::cuda {

void attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
               const HeadView& o, Tensor& lse) {
  switch (choose_cuda_attention(in, options, AttentionPass::forward).which) {
    case CudaAttention::cudnn:
      return cudnn_attention(in, options, workspace, o, lse);
    case CudaAttention::products:
      return product_attention(in, options, workspace, o, lse);
    case CudaAttention::own:
      return own_attention(in, options, o, lse);
  }
}

void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        Tensor& workspace, const AttentionGradients& grads) {
  switch (choose_cuda_attention(in, options, AttentionPass::backward).which) {
    case CudaAttention::cudnn:
      return cudnn_attention_backward(in, options, o, lse, d_o, workspace, grads);
    case CudaAttention::products:
      return product_attention_backward(in, options, o, lse, d_o, workspace, grads);
    case CudaAttention::own:
      return own_attention_backward(in, options, o, lse, d_o, workspace, grads);
  }
}

}  // namespace phx::kernels::cuda
