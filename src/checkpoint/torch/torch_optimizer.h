// Adam's state of one rank of a torch checkpoint, parameter by parameter. It lies in `optimizer` of
// model_optim_rng.pt, a tensor for every parameter; or, with the distributed optimizer, in
// distrib_optim.pt, flat.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "phalanx/checkpoint/torch/torch_archive.h"

namespace phx {

// One part of a rank's model; layers are numbered from 0 in each.
struct TorchChunk {
  std::map<std::string, TorchTensor> tensors;
  std::vector<std::string> parameters;  // in the order in which the model registered them
};

// "optimizer.exp_avg.", "optimizer.exp_avg_sq." and, beside 16-bit weights, "optimizer.master.":
// tensors of the parameters' shapes, under the parameters' names.
using TorchStates = std::map<std::string, std::map<std::string, TorchTensor>>;

struct TorchRank {
  const TorchArchive& file;            // model_optim_rng.pt
  const TorchArchive* distributed;     // distrib_optim.pt; null: there is none
  std::span<const TorchChunk> chunks;  // of its model
  const nlohmann::json& args;          // the run's arguments
  int64_t stage = 0, num_stages = 1;   // of the pipeline
};

// The states of every chunk. An error that says why where they cannot be read: of another
// optimizer, of a form that is not known, not there.
std::vector<TorchStates> torch_optimizer_states(const TorchRank& rank);

// Counters of the optimizer as JSON: {"param_groups": [{"step": ..}], "grad_scaler": {..}}.
std::string torch_optimizer_json(const TorchArchive& file);

}  // namespace phx
