// What computed the attention of a runtime so far, for the log: by cuDNN, or by something else and
// why. On meta, what would compute it on the target.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "phalanx/kernels/attention.h"

namespace phx::kernels {

class AttentionUse {
 public:
  explicit AttentionUse(Runtime& runtime) : runtime_(runtime) {}

  void note(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass);

  struct Line {
    std::string text;
    bool slow = false;  // several times slower than cuDNN's
  };
  std::vector<Line> lines() const;

 private:
  Runtime& runtime_;
  // pass, packed, who, the reason against cuDNN or null
  std::set<std::tuple<AttentionPass, bool, CudaAttention, const char*>> seen_;
};

}  // namespace phx::kernels
