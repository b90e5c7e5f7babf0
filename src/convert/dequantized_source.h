// A source whose FP8 matrices (DeepSeek-V3 as it was released) are bf16: each block of a matrix has
// a factor, kept beside it as "<name>_scale_inv".
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

struct Fp8Blocks {
  int64_t rows = 128, cols = 128;  // of a block
};

class DequantizedSource : public TensorSource {
 public:
  // An error names an FP8 tensor without factors, and factors of another shape.
  DequantizedSource(std::shared_ptr<const TensorSource> source, const Fp8Blocks& blocks);

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  Fp8Blocks blocks_;
  TensorInfos tensors_;
};

}  // namespace phx
