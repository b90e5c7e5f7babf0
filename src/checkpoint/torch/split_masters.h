// A source with f32 masters as our runs save it: beside bf16 weights the 16 bits that they lack
// (kernels/master_split.h), beside f32 weights nothing, since they are the masters.
//
// The bf16 weights are made of the masters again: of the few masters that lie in the middle of two
// of them ours takes the other one, and a weight must fit its remainder.
#pragma once

#include <memory>

#include "checkpoint/tensor_source.h"

namespace phx {

class SplitMasters : public TensorSource {
 public:
  explicit SplitMasters(std::shared_ptr<const TensorSource> source);

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  enum class Part : uint8_t { weight, remainder };
  struct Split {
    std::string master;
    Part part;
  };

  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, Split> split_;
};

}  // namespace phx
