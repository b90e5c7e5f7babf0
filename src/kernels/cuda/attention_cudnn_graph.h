// Graphs of cuDNN 9's attention, built through cudnn-frontend.
//
// A graph is built once for a problem (shapes, strides, options) and kept with the rank's Runtime.
// Building takes a second or so and happens while the workspace is asked for, so in the first step.
// Packed sequences are a batch of as many, each as long as the longest, whose lengths and first
// elements are read from the device: a graph serves every batch of that count and that maximum.
#pragma once

#include <initializer_list>
#include <span>
#include <utility>

#include "phalanx/kernels/attention.h"

namespace phx::kernels::cuda {

struct CudnnPlan {
  virtual ~CudnnPlan() = default;
  int64_t workspace_bytes = 0;
  bool tested = false;
  int tests = 0;
};

class CudnnGraphs {
 public:
  virtual ~CudnnGraphs() = default;

  virtual CudnnPlan& forward(const AttentionInputs& in, const AttentionOptions& options,
                             const HeadView& o) = 0;
  virtual CudnnPlan& backward(const AttentionInputs& in, const AttentionOptions& options,
                              const HeadView& o, const HeadView& d_o,
                              const AttentionGradients& grads) = 0;

  enum Uid : int64_t { kQ = 1, kK, kV, kO, kStats, kDo, kDq, kDk, kDv };
  using Views = std::initializer_list<std::pair<Uid, const HeadView*>>;

  // `room`: the workspace, or what is left of it.
  virtual void run(CudnnPlan& plan, const AttentionInputs& in, const Views& views,
                   const Tensor& lse, std::span<std::byte> room) = 0;
};

CudnnGraphs& cudnn_graphs(Runtime& runtime);

// Where a view's first element is. Throws unless cuDNN can read it there.
void* cudnn_address(const HeadView& x);

}  // namespace phx::kernels::cuda
