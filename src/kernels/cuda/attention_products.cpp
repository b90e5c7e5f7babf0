#include "phalanx/kernels/attention_products.h"

#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_rows.h"
#include "phalanx/kernels/cuda/cublas_lt.h"
#include "phalanx/kernels/matmul.h"

namespace phx::kernels::cuda {

namespace {

class Gpu final : public ProductDevice {
 public:
  Gpu(const AttentionInputs& in, const AttentionOptions& options, float* lse)
      : lt_(in.q.device().runtime().extension<CublasLt>()),
        scratch_(matmul_workspace(in.q.device().runtime())),
        stream_(static_cast<cudaStream_t>(in.q.device().compute_stream())),
        options_{.dtype = in.q.dtype(),
                 .sq = in.q.s,
                 .sk = in.k.s,
                 .causal = options.causal,
                 .window = options.window_left,
                 .scale = attention_scale(in, options),
                 .softcap = options.softcap,
                 .lse = lse} {}

  void multiply(const GemmProblem& problem, uintptr_t a, uintptr_t b, uintptr_t c) override {
    void* out = reinterpret_cast<void*>(c);
    lt_.multiply(lt_problem(problem),
                 {.a = reinterpret_cast<const void*>(b),
                  .b = reinterpret_cast<const void*>(a),
                  .old = out,
                  .c = out,
                  .bias = nullptr},
                 1.f, 0.f, {.data = scratch_.raw(), .bytes = size_t(scratch_.bytes())}, stream_);
  }
  void copy_rows(const Extent& extent, const HeadRows& from, const HeadRows& to) override {
    copy_head_rows(options_.dtype, extent, from, to, stream_);
  }
  void zero_rows(const Extent& extent, const HeadRows& at) override {
    zero_head_rows(options_.dtype, extent, at, stream_);
  }
  void softmax(const ScoreBlock& block) override { softmax_scores(block, options_, stream_); }
  void delta(const Extent& extent, const HeadRows& o, const HeadRows& d_o, const HeadRows& to,
             uintptr_t delta) override {
    make_delta(options_.dtype, extent, o, d_o, to, delta, stream_);
  }
  void differentiate(const ScoreBlock& block, const Gradients& gradients) override {
    differentiate_scores(block, gradients, options_, stream_);
  }

 private:
  CublasLt& lt_;
  Tensor scratch_;
  cudaStream_t stream_;
  ScoreOptions options_;
};

uintptr_t address(const Tensor& workspace, int64_t bytes) {
  PHX_CHECK(workspace.bytes() >= bytes, "attention by products needs ", bytes,
            " bytes of workspace and has ", workspace.bytes());
  return reinterpret_cast<uintptr_t>(workspace.raw());
}

}  // namespace

std::unique_ptr<ProductDevice> product_device(const AttentionInputs& in,
                                              const AttentionOptions& options, const Tensor& lse) {
  return std::make_unique<Gpu>(in, options, lse.data<float>());
}

void product_attention(const AttentionInputs& in, const AttentionOptions& options,
                       Tensor& workspace, const HeadView& o, Tensor& lse,
                       const ProductSizes& sizes) {
  Gpu gpu(in, options, lse.data<float>());
  const int64_t bytes = product_workspace_bytes(in, AttentionPass::forward, sizes);
  kernels::product_attention(gpu, in, options, o, address(workspace, bytes), sizes);
}

void product_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                                const HeadView& o, const Tensor& lse, const HeadView& d_o,
                                Tensor& workspace, const AttentionGradients& grads,
                                const ProductSizes& sizes) {
  Gpu gpu(in, options, lse.data<float>());
  const int64_t bytes = product_workspace_bytes(in, AttentionPass::backward, sizes);
  kernels::product_attention_backward(gpu, in, options, o, d_o, grads, address(workspace, bytes),
                                      sizes);
}

}  // namespace phx::kernels::cuda
