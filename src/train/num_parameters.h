// How many parameters a model has, without padding, whatever the layout: counted from a model that
// has no memory.
#pragma once

#include <cstdint>

#include "transformer/transformer_config.h"

namespace phx {

int64_t num_parameters(const TransformerConfig& model);

}  // namespace phx
