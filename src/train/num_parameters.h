// How many parameters a model has, without padding, whatever the layout: counted from a model that
// has no memory.
#pragma once

#include <cstdint>

#include "phalanx/models/model_family.h"

namespace phx {

int64_t num_parameters(const ModelFamily& family, const TransformerConfig& config);

}  // namespace phx
