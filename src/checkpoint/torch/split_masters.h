// A source with f32 masters as our runs save it: beside bf16 weights the 16 bits that they lack
// (kernels/master_split.h), beside f32 weights nothing, since they are the masters.
//
// The bf16 weights are made of the masters again: of the few masters that lie in the middle of two
// of them ours takes the other one, and a weight must fit its remainder. Whoever reads a weight has
// it compared with its master (master_fit.h): where somebody changed the weights, that is an error.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

class SplitMasters : public TensorSource {
 public:
  explicit SplitMasters(std::shared_ptr<const TensorSource> source);

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  // `whole`: a weight of another type than bf16, which is read as it is.
  enum class Part : uint8_t { weight, whole, remainder };
  struct Split {
    std::string master;
    Part part;
  };
  void check_weights(const std::string& name, const Box& box, std::span<const float> masters) const;

  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, Split> split_;
};

}  // namespace phx
