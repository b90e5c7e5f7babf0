// Which parameters training leaves as they are: --freeze-modules. They stand in a store of their
// own (Session::frozen), which has weights alone: no gradient, bucket, norm or optimizer knows
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "phalanx/base/problem.h"
#include "phalanx/models/model_family.h"

namespace phx {

// A module is a part of a parameter's name, from dot to dot, in which * stands for any letters but
// dots: of "decoder.layers.0.mlp.linear_fc1.weight" "mlp", "decoder.layers.0", "linear_fc*.weight".
bool is_frozen(const std::vector<std::string>& modules, const std::string& parameter);

// Modules that the model does not have; and that nothing is left to train.
Problems frozen_problems(const ModelFamily& family, const TransformerConfig& model,
                         const std::vector<std::string>& modules);

// How many parameters are frozen, without padding, whatever the layout.
int64_t num_frozen_parameters(const ModelFamily& family, const TransformerConfig& model,
                              const std::vector<std::string>& modules);

}  // namespace phx
