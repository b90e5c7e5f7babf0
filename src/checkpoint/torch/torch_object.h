// Objects as torch.save writes them, out of JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace phx {

// Lists and dicts of numbers, texts and None. Three dicts mean something else, since JSON has no
// words for it:
//   {"$namespace": {..}}  argparse.Namespace with these attributes
//   {"$numbered": [..]}   a dict with the keys 0, 1, ..
//   {"$tensor": [1.5]}    an fp32 tensor of these numbers; {"$tensor": 1.5} has no axes
std::string saved_object(const nlohmann::json& value);

}  // namespace phx
