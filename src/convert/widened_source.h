// A source whose floats all have one type, wide enough for what they were.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

class WidenedSource : public TensorSource {
 public:
  WidenedSource(std::shared_ptr<const TensorSource> source, DType dtype);

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  DType dtype_;
  TensorInfos tensors_;
};

}  // namespace phx
