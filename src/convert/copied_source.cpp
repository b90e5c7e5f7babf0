#include "phalanx/convert/copied_source.h"

#include "phalanx/base/error.h"

namespace phx {

CopiedSource::CopiedSource(std::shared_ptr<const TensorSource> source,
                           std::map<std::string, std::string> original_of)
    : source_(std::move(source)),
      original_of_(std::move(original_of)),
      tensors_(source_->tensors()) {
  for (const auto& [copy, original] : original_of_) {
    const auto found = source_->tensors().find(original);
    PHX_CHECK(found != source_->tensors().end(), description(), " has no ", original, ", of which ",
              copy, " would be a copy");
    tensors_[copy] = found->second;
  }
}

void CopiedSource::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto copy = original_of_.find(name);
  source_->read(copy == original_of_.end() ? name : copy->second, box, out);
}

}  // namespace phx
