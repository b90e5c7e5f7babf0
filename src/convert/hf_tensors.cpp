#include "phalanx/convert/hf_tensors.h"

#include "phalanx/convert/rearranged_source.h"
#include "phalanx/convert/zero_biases.h"

namespace phx {

HfTensors::HfTensors(std::shared_ptr<const TensorSource> ours, const Family& family,
                     TransformerConfig model) {
  if (has_expert_biases(family)) add_zero_biases(model, ours);
  const std::vector<TensorPair> pairs = tensor_pairs(family, model);
  for (const TensorPair& pair : pairs) {
    for (const TensorPair::Theirs& theirs : pair.hf) {
      order.push_back(theirs.name);
      if (pair.own_type) own_types.insert(theirs.name);
    }
  }
  const std::string where = ours->description();
  source = RearrangedSource::megatron_as_hf(std::move(ours), pairs, where);
}

}  // namespace phx
