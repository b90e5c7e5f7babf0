// Experts beside how Megatron keeps them. A layer's experts are one matrix here, one below the
// other
// ("mlp.experts.linear_fc1.weight", [e 2f, h]); Megatron names each of them for itself
// ("mlp.experts.linear_fc1.weight3", [2f, h]). Optimizer state follows its weights.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

// Megatron's experts as ours.
class JoinedExperts : public TensorSource {
 public:
  // An Error where a layer lacks one of its experts, or they differ in type or shape.
  explicit JoinedExperts(std::shared_ptr<const TensorSource> source);

  const TensorInfos& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  TensorInfos infos_;
  std::map<std::string, std::vector<std::string>> experts_;  // of the source, in order
};

// Our experts, `num_experts` in a layer, as Megatron's.
class SplitExperts : public TensorSource {
 public:
  SplitExperts(std::shared_ptr<const TensorSource> source, int64_t num_experts);

  const TensorInfos& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  struct Rows {
    std::string name;  // of the source
    int64_t first;
  };
  std::shared_ptr<const TensorSource> source_;
  TensorInfos infos_;
  std::map<std::string, Rows> experts_;
};

}  // namespace phx
