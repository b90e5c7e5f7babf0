// A source in which tensors that hold all experts of a layer ([e, rows, cols], as newer versions of
// the library keep them in memory) are one tensor for each expert and projection.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/family.h"

namespace phx {

class UnstackedSource : public TensorSource {
 public:
  // The family's table says which tensors these are; others keep their names.
  UnstackedSource(std::shared_ptr<const TensorSource> source, const Family& family);

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  struct Place {
    std::string stacked;
    int64_t expert = -1, row = 0;  // -1: the tensor itself, under another name or its own
  };
  void add(const std::string& name, const TensorInfo& info, Place place);
  void take_apart(const std::string& name, const TensorInfo& info, const std::string& layer,
                  const char* pattern);

  std::shared_ptr<const TensorSource> source_;
  TensorInfos tensors_;
  std::map<std::string, Place> places_;
};

}  // namespace phx
