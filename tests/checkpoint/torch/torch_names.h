// The model of scripts/make_torch_fixtures.py by its names, and copies of its folders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/torch_fixture.h"
#include "phalanx/base/error.h"
#include "support/temp_folder.h"

namespace phx {

// The names of the script's model: as many layers, those from `moe_from` on with two experts.
inline std::vector<std::string> model_names(int layers, int moe_from) {
  std::vector<std::string> names = {"embedding.word_embeddings.weight",
                                    "decoder.final_layernorm.weight", "output_layer.weight"};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = str_cat("decoder.layers.", layer, ".");
    for (const char* name :
         {"self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.weight",
          "self_attention.linear_proj.weight"})
      names.push_back(prefix + name);
    if (layer < moe_from) {
      for (const char* name :
           {"mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"})
        names.push_back(prefix + name);
    } else {
      for (const char* name : {"pre_mlp_layernorm.weight", "mlp.router.weight",
                               "mlp.experts.linear_fc1.weight0", "mlp.experts.linear_fc1.weight1",
                               "mlp.experts.linear_fc2.weight0", "mlp.experts.linear_fc2.weight1"})
        names.push_back(prefix + name);
    }
  }
  return names;
}

// A copy of a fixture that a test may damage.
inline Path copied(const TempFolder& folder, const char* name) {
  std::filesystem::copy(torch_fixture(name), folder.path() / name,
                        std::filesystem::copy_options::recursive);
  return folder / name;
}

}  // namespace phx
