// The units of fully sharded data parallelism.
#pragma once

#include <string>

namespace phx {

// A layer is a unit, and so is what stands beside the layers: of "decoder.layers.7.mlp.fc1.weight"
// "decoder.layers.7", of "embedding.word_embeddings.weight" "embedding".
std::string unit_of(const std::string& parameter);

}  // namespace phx
