#include "phalanx/convert/widened_source.h"

#include "phalanx/base/error.h"

namespace phx {

WidenedSource::WidenedSource(std::shared_ptr<const TensorSource> source, DType dtype)
    : source_(std::move(source)), dtype_(dtype), tensors_(source_->tensors()) {
  for (auto& [name, info] : tensors_)
    if (is_float(info.dtype)) info.dtype = dtype;
}

void WidenedSource::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = source_->tensors().find(name);
  PHX_CHECK(found != source_->tensors().end(), description(), " has no tensor ", name);
  const DType given = found->second.dtype;
  if (given == dtype_ || !is_float(given)) return source_->read(name, box, out);
  std::vector<std::byte> buffer(size_t(box.numel() * size_of(given)));
  source_->read(name, box, buffer);
  convert_floats(given, buffer, dtype_, out);
}

}  // namespace phx
