// The two ways in which Megatron's `torch` checkpoints hold Adam's state, and what both check. For
// torch_optimizer.cpp; not for others.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/checkpoint/torch/torch_optimizer.h"

namespace phx {

inline constexpr const char* kMaster = "optimizer.master.";
inline constexpr auto kMoments = std::to_array<std::pair<const char*, const char*>>({
    {"exp_avg", "optimizer.exp_avg."},
    {"exp_avg_sq", "optimizer.exp_avg_sq."},
});

bool flag_at(const nlohmann::json& args, const char* key);

// Where groups and states lie: the mixed-precision optimizer has Adam's inside its own.
const PickleValue& inner_optimizer(const PickleValue& optimizer);

// A weight is its master rounded. Where that is not so, the two do not belong together: an error.
void check_master(const std::string& where, const std::string& name, const TorchTensor& weight,
                  const TorchTensor& master);

// With the distributed optimizer: flat buffers in distrib_optim.pt.
std::vector<TorchStates> distributed_states(const TorchRank& rank);
// Without it: a tensor for every parameter, in groups.
std::vector<TorchStates> grouped_states(const TorchRank& rank, const PickleValue& optimizer);

}  // namespace phx
