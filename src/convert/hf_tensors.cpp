#include "phalanx/convert/hf_tensors.h"

#include <algorithm>
#include <map>

#include "phalanx/base/error.h"
#include "phalanx/convert/copied_source.h"
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
  add_copies(family, model, pairs);
}

// Layers of multi-token prediction come with the embedding and the head that they share.
void HfTensors::add_copies(const Family& family, const TransformerConfig& model,
                           const std::vector<TensorPair>& pairs) {
  std::map<std::string, std::string> original_of;
  for (int64_t layer = model.num_layers; layer < model.all_layers(); ++layer) {
    for (const TensorRow& row : family.ahead_copies) {
      const auto pair = std::ranges::find(pairs, row.ours, &TensorPair::ours);
      if (pair == pairs.end()) continue;  // a head that is tied
      order.push_back(str_cat(family.layers, layer, ".", row.hf));
      original_of[order.back()] = pair->hf.at(0).name;
    }
  }
  if (!original_of.empty())
    source = std::make_shared<CopiedSource>(std::move(source), std::move(original_of));
}

}  // namespace phx
