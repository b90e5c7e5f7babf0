// A source with some of its tensors twice: under their own names, and under others.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

class CopiedSource : public TensorSource {
 public:
  // `original_of`: of each copy's name.
  CopiedSource(std::shared_ptr<const TensorSource> source,
               std::map<std::string, std::string> original_of);

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, std::string> original_of_;
  TensorInfos tensors_;
};

}  // namespace phx
