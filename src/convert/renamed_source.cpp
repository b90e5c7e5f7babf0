#include "phalanx/convert/renamed_source.h"

#include "phalanx/base/error.h"

namespace phx {

RenamedSource::RenamedSource(
    std::shared_ptr<const TensorSource> source,
    const std::function<std::optional<std::string>(const std::string& name)>& name_of)
    : source_(std::move(source)) {
  for (const auto& [name, info] : source_->tensors()) {
    const std::optional<std::string> renamed = name_of(name);
    if (!renamed) continue;
    const bool fresh = old_names_.emplace(*renamed, name).second;
    PHX_CHECK(fresh, source_->description(), ": two tensors would be called ", *renamed);
    tensors_[*renamed] = info;
  }
}

void RenamedSource::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = old_names_.find(name);
  PHX_CHECK(found != old_names_.end(), source_->description(), " has no tensor ", name);
  source_->read(found->second, box, out);
}

}  // namespace phx
