// Which of cuDNN's attention a run relies on. Two guards stand before it:
//
//   - a table of faults that versions of cuDNN are known to have;
//   - a test of every plan at its first use: one or two heads of the very tensors that it computed
//   are
//     computed again by our own kernels. A plan that disagrees is reported, its results are
//     replaced, and no plan of its kind is used again in this process.
//
// --cudnn-attention trusted leaves the test out, off leaves cuDNN out.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>

#include "phalanx/kernels/attention.h"

namespace phx::kernels::cuda {

// What plans have in common that were right or wrong together.
struct AttentionKind {
  AttentionPass pass = AttentionPass::forward;
  DType dtype = DType::bf16;
  int64_t d = 0, dv = 0;  // channels of query heads and of value heads
  bool packed = false;
  bool shared = false;  // several query heads use one key head
  bool causal = true, windowed = false, deterministic = false;

  auto operator<=>(const AttentionKind&) const = default;
  std::string text() const;  // "the backward of packed attention (bf16, heads of 128, ..)"
};
AttentionKind attention_kind(const AttentionInputs& in, const AttentionOptions& options,
                             AttentionPass pass);

// What is known against this version (91400 is 9.14.0) for this kind; null: nothing.
const char* known_cudnn_fault(int64_t version, const AttentionKind& kind);
std::string cudnn_version_text(int64_t version);

// Of a rank, kept with its Runtime.
class AttentionTrust {
 public:
  explicit AttentionTrust(Runtime& runtime) : runtime_(runtime) {}

  // Whether cuDNN is asked. Says why not, once for every kind.
  bool trusts(const AttentionKind& kind);
  bool tests_plans() const { return runtime_.options().cudnn_attention == CudnnUse::checked; }

  // Whether results of cuDNN are what our own kernels compute. They wait for the device. `unknown`:
  // the inputs cannot tell (all zero, or not finite).
  enum class Verdict { right, unknown, wrong };
  Verdict test(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
               const Tensor& lse);
  Verdict test_backward(const AttentionInputs& in, const AttentionOptions& options,
                        const HeadView& o, const Tensor& lse, const HeadView& d_o,
                        const AttentionGradients& grads);

 private:
  Verdict judge(const AttentionKind& kind, double worst, const char* tensor);

  Runtime& runtime_;
  std::set<AttentionKind> wrong_, told_;
};

}  // namespace phx::kernels::cuda
