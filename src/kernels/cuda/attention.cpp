#include "phalanx/kernels/attention.h"

#include "phalanx/kernels/cuda/attention_own.h"

namespace phx::kernels::cuda {

void attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
               const HeadView& o, Tensor& lse) {
  if (choose_cuda_attention(in, options, AttentionPass::forward) == CudaAttention::cudnn)
    cudnn_attention(in, options, workspace, o, lse);
  else
    own_attention(in, options, o, lse);
}

void attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        Tensor& workspace, const AttentionGradients& grads) {
  if (choose_cuda_attention(in, options, AttentionPass::backward) == CudaAttention::cudnn)
    cudnn_attention_backward(in, options, o, lse, d_o, workspace, grads);
  else
    own_attention_backward(in, options, o, lse, d_o, workspace, grads);
}

}  // namespace phx::kernels::cuda
