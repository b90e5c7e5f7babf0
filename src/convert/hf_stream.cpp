#include "phalanx/convert/hf_stream.h"

#include "phalanx/convert/rearranged_source.h"
#include "phalanx/convert/router_biases.h"

namespace phx {

const Family& for_each_hf_tensor(
    std::shared_ptr<const TensorSource> ours, const HfExport& what,
    const std::function<void(const std::string& name, const HfTensor& tensor)>& f) {
  const Family& family = what.family != nullptr ? *what.family : family_for(what.model);
  const std::vector<TensorPair> pairs = tensor_pairs(family, what.model);
  const std::string where = ours->description();
  const std::shared_ptr<const TensorSource> theirs = with_router_biases(
      RearrangedSource::megatron_as_hf(std::move(ours), pairs, where), family, what.model);
  std::vector<std::byte> read, converted;
  for (const std::string& name : hf_order(pairs, *theirs)) {
    TensorInfo info = theirs->tensors().at(name);
    const Box box = whole_box(info.shape);
    read.resize(size_t(box.numel() * size_of(info.dtype)));
    theirs->read(name, box, read);
    if (!what.dtype || *what.dtype == info.dtype || !is_float(info.dtype)) {
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
