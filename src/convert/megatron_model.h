// A checkpoint of Megatron's (torch_dist or torch) as one of our models: its tensors under our
// names, and what its run's arguments say of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

// An iter_* folder of Megatron's, or a folder of them; `step`: not the newest of it.
bool is_megatron_folder(const Path& folder, std::optional<int64_t> step = {});

enum class MegatronParts : uint8_t { weights, weights_and_optimizer };

struct MegatronModel {
  // `vocab_size`: tokens without padding, if the run's arguments do not say it; 0: as they say.
  // `parts`: what is wanted. Weights alone are those of the file, and no state is opened.
  explicit MegatronModel(const Path& folder, std::optional<int64_t> step = {},
                         int64_t vocab_size = 0,
                         MegatronParts parts = MegatronParts::weights_and_optimizer);

  Path path;         // the iter_* folder
  std::string kind;  // "torch_dist"
  // Weights; and as our runs save it optimizer state, if it is wanted and all of the model has it.
  // Such weights are compared with their masters when they are read (split_masters.h).
  std::shared_ptr<const TensorSource> tensors;
  std::shared_ptr<const TensorSource> weights;  // as they are in the file
  bool has_optimizer = false;
  std::string why_no_optimizer;  // where it is wanted and there is none
  bool optimizer_saved = false;  // some is there, read or not
  bool release = false;          // weights of no iteration: the folder "release"
  std::string common_json;       // the run's replicated state: "args", "iteration", ..

  // Options of the model, as in options.json; an error if the checkpoint does not say them.
  nlohmann::json options() const;

 private:
  int64_t vocab_size_;
};

}  // namespace phx
