// What --recompute-modules may name: places that the library's parts know, and whole parts of the
// model's layers, also those of a program's own.
#pragma once

#include <string>
#include <vector>

#include "phalanx/base/problem.h"
#include "phalanx/models/model_family.h"

namespace phx {

// Those of the modules that are not places inside of parts, so names of parts.
std::vector<std::string> recomputed_parts(const std::vector<std::string>& modules);

// Modules that are neither a place nor a part of the model's layers (NamedPart::name).
Problems recompute_problems(const ModelFamily& family, const TransformerConfig& model,
                            const std::vector<std::string>& modules);

}  // namespace phx
