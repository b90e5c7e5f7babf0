// Linears together with the norm before or after them, under Megatron's names: a fused norm's
// weight is the linear's "layer_norm_weight"; a norm on the output is "post_layernorm".
#pragma once

#include <optional>
#include <string>

#include "phalanx/kernels/dropout.h"
#include "phalanx/nn/norm.h"
#include "phalanx/parallel/tensor/layers.h"
#include "phalanx/transformer/forward_context.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

NormSpec norm_spec(const TransformerConfig& config, int64_t width, const ParameterAxes& axes);
// Of the norm on a branch's output, where the model has one.
std::optional<NormSpec> post_norm_spec(const TransformerConfig& config, const TensorParallel& tp);
// Where in the global batch the rows [s/tp or s, b, h] of a rank stand, for dropout.
kernels::RandomSite random_site(const std::string& name, const ForwardContext& context,
                                const TensorParallel& tp, int64_t local_rows);

class NormedLinear : public ColumnLinear {
 public:
  // `norm`: none: the linear alone.
  NormedLinear(const std::optional<NormSpec>& norm, int64_t in, const RowCut& out,
               const LinearOptions& options, const TensorParallel& tp);
  // [s/tp, b, in] -> [s, b, out/tp]. `remake_norm`: its output is not kept but made again.
  Tensor forward(const Tensor& x, bool remake_norm);

 private:
  std::optional<Norm> norm_;
};

// The linear at the end of a branch, whose output joins the residual stream.
class BranchLinear : public RowLinear {
 public:
  // `post_norm`: the output is normalised first (Gemma-2).
  BranchLinear(int64_t in, int64_t out, const LinearOptions& options, const TensorParallel& tp,
               const std::optional<NormSpec>& post_norm);

  struct Drop {
    double p = 0;
    const std::string& site;
  };
  // residual + dropout(post_norm(x W^T + b)): [s/tp, b, out], [s, b, in/tp] -> [s/tp, b, out]
  Tensor add_to(const Tensor& residual, const Tensor& x, const Drop& drop,
                const ForwardContext& context, const Remake& remake = {});
  // Whether the backward of join() reads the branch.
  bool keeps_branch() const { return post_norm_.has_value(); }
  // The same behind multiply(), whose result is `branch` [s/tp, b, out].
  Tensor join(const Tensor& residual, Tensor branch, const Drop& drop,
              const ForwardContext& context);

 private:
  std::optional<NormModule> post_norm_;
};

}  // namespace phx
