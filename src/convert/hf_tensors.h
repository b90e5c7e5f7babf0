// What an export consists of: the tensors of one of our models under Hugging Face's names.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/family.h"
#include "phalanx/convert/tensor_map.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct HfTensors {
  // `ours`: tensors under Megatron's names, of which optimizer state is not looked at.
  HfTensors(std::shared_ptr<const TensorSource> ours, const Family& family,
            TransformerConfig model);

  std::shared_ptr<const TensorSource> source;
  std::vector<std::string> order;   // of the model's layers, then its buffers
  std::set<std::string> own_types;  // tensors that are not converted with the weights

 private:
  void add_copies(const Family& family, const TransformerConfig& model,
                  const std::vector<TensorPair>& pairs);
};

}  // namespace phx
