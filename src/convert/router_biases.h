// The router's biases in folders of DeepSeek-V3 ("e_score_correction_bias"): a model without such
// buffers computes the same only if they are zero. Once they are read into the buffers of
// --moe-router-enable-expert-bias (the family's table has the row), this file goes.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/family.h"
#include "phalanx/convert/tensor_map.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

// The folder's tensors without biases that are zero; others are an error.
std::shared_ptr<const TensorSource> without_router_biases(std::shared_ptr<const TensorSource> hf,
                                                          const Family& family);
// An export's tensors with zeros in their place: other programs ask for them.
std::shared_ptr<const TensorSource> with_router_biases(std::shared_ptr<const TensorSource> hf,
                                                       const Family& family,
                                                       const TransformerConfig& model);

// The names of an export in the order of the model's layers, biases that were added last.
std::vector<std::string> hf_order(const std::vector<TensorPair>& pairs, const TensorSource& hf);

}  // namespace phx
