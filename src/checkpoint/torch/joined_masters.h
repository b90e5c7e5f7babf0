// A checkpoint of our runs with its optimizer state as Megatron saves it: an f32 master of every
// weight (made of bf16 weights and what is kept beside them, or the f32 weights themselves) and
// moments in f32. bf16 weights are the masters rounded as PyTorch does it, ties to even: ours are
// the others there (kernels/master_split.h). The other way is split_masters.h.
#pragma once

#include <memory>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

class JoinedMasters : public TensorSource {
 public:
  explicit JoinedMasters(std::shared_ptr<const TensorSource> source);

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  enum class Kind : uint8_t { as_is, widened, joined, rounded };
  struct Made {
    Kind kind;
    std::string from;       // of the source
    std::string remainder;  // what a bf16 weight lacks
  };

  std::vector<float> values(const Made& made, const Box& box) const;

  std::shared_ptr<const TensorSource> source_;
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, Made> made_;
};

}  // namespace phx
