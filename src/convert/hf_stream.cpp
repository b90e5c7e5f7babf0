#include "phalanx/convert/hf_stream.h"

#include "phalanx/convert/hf_tensors.h"

namespace phx {

const Family& for_each_hf_tensor(
    std::shared_ptr<const TensorSource> ours, const HfExport& what,
    const std::function<void(const std::string& name, const HfTensor& tensor)>& f) {
  const Family& family = what.family != nullptr ? *what.family : family_for(what.model);
  const HfTensors theirs(std::move(ours), family, what.model);
  std::vector<std::byte> read, converted;
  for (const std::string& name : theirs.order) {
    TensorInfo info = theirs.source->tensors().at(name);
    const Box box = whole_box(info.shape);
    read.resize(size_t(box.numel() * size_of(info.dtype)));
    theirs.source->read(name, box, read);
    if (!what.dtype || *what.dtype == info.dtype || !is_float(info.dtype) ||
        theirs.own_types.contains(name)) {
      f(name, {info, read});
      continue;
    }
    converted.resize(size_t(box.numel() * size_of(*what.dtype)));
    convert_floats(info.dtype, read, *what.dtype, converted);
    info.dtype = *what.dtype;
    f(name, {info, converted});
  }
  return family;
}

}  // namespace phx
