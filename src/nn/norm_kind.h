// The norms that a model can have: one name for the option, the layer and the checkpoint's options.
#pragma once

#include <array>

namespace phx {

enum class Normalization { LayerNorm, RMSNorm };
constexpr auto option_names(Normalization) { return std::array{"LayerNorm", "RMSNorm"}; }

}  // namespace phx
