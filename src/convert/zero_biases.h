// Biases of experts in families whose routers always have them (DeepSeek-V3). A model that has none
// computes what it would compute with zeros.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/family.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

bool has_expert_biases(const Family& family);

// Gives a model without biases of experts biases that are zero: adds them to its tensors
// (Megatron's names) and sets the option. A model that has them, or has no experts, stays as it is.
void add_zero_biases(TransformerConfig& model, std::shared_ptr<const TensorSource>& tensors);

}  // namespace phx
