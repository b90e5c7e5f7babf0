// Some tensors of a source under other names, their numbers untouched.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

class RenamedSource : public TensorSource {
 public:
  // `name_of`: the new name of a tensor; nothing to leave it out.
  RenamedSource(std::shared_ptr<const TensorSource> source,
                const std::function<std::optional<std::string>(const std::string& name)>& name_of);

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  TensorInfos tensors_;
  std::map<std::string, std::string> old_names_;
};

}  // namespace phx
