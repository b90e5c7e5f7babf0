// The .metadata file of a distributed checkpoint, written: the other side of torch_dist_metadata.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

namespace phx {

// Tensors with where their chunks lie, and byte objects. Several keys may share a place.
std::string pickled_metadata(const TorchDistMetadata& metadata);

}  // namespace phx
