// What the arguments of a Megatron run say of its model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace phx {

// The options of the model as in options.json. An Error names an argument that makes it a model
// that is not known here. `where` names the checkpoint. The vocabulary is left to the caller.
nlohmann::json megatron_model_options(const nlohmann::json& args, const std::string& where);

}  // namespace phx
