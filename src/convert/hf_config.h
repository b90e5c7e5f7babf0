// config.json and TransformerConfig, by the family's table. Import is strict in what would change
// the function: an unsupported value is an error that names it. Export is checked by importing what
// it wrote: a family that cannot say all of a model is refused, with what it cannot say.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/convert/dequantized_source.h"
#include "phalanx/convert/family.h"
#include "phalanx/convert/function_differences.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct HfConfig {
  const Family* family = nullptr;
  TransformerConfig model;
  std::optional<Fp8Blocks> fp8;     // matrices are FP8 with a factor for each block
  std::vector<std::string> unread;  // keys that nothing here knows
};

// `where` names the file in errors, which tell everything that is wrong at once.
HfConfig config_from_hf(const nlohmann::json& config, const std::string& where);

// `base`: keys of an older config.json (token ids and the like), which stay where the model does
// not say otherwise. `dtype`: of the weights, as torch names it ("bfloat16").
nlohmann::json config_to_hf(const Family& family, const TransformerConfig& model,
                            const std::string& dtype, const nlohmann::json& base);

// The family whose config.json can say all of `model`; an error tells what stands in the way.
const Family& family_for(const TransformerConfig& model);

}  // namespace phx
