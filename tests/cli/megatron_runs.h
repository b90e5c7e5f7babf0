// Runs that Megatron-LM itself trained and saved as torch_dist, and what it computed
// (scripts/check_megatron.py --fixtures): saved after iteration 3, logits then, and losses of the
// three iterations that followed.
#pragma once

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"
#include "support/temp_folder.h"

namespace phx::testing::megatron {

inline Path fixture(const std::string& name) { return Path(PHX_TEST_DATA) / "megatron" / name; }

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

inline nlohmann::json about(const Path& folder) {
  return parse_json(read_file(folder / "run.json"));
}

// `pretrain` with the flags of Megatron's run, but for those of its ranks.
inline std::string pretrain(const std::string& name, const std::string& load,
                            const TempFolder& out) {
  return str_cat("pretrain ", about(fixture(name)).at("flags").get<std::string>(),
                 " --tokenizer-type NullTokenizer --data-path ", fixture("tokens").string(),
                 " --data-cache-path ", (out / "cache").string(), " --load ", load, " ");
}

// Of tensors and of bytes.
inline std::set<std::string> keys(const Path& iteration) {
  const auto metadata = TorchDistMetadata::read(iteration / ".metadata");
  std::set<std::string> result;
  for (const auto& [key, unused] : metadata.tensors) result.insert(key);
  for (const auto& [key, unused] : metadata.objects) result.insert(key);
  return result;
}

}  // namespace phx::testing::megatron
