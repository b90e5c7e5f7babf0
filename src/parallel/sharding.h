// What data-parallel ranks divide among themselves instead of each having all of it.
#pragma once

#include <array>
#include <cstdint>

namespace phx {

// Each includes those before it: nothing; the optimizer's state (ZeRO-1); and gradients (ZeRO-2);
// and weights (ZeRO-3).
enum class Sharding : uint8_t { no_shard, optim, optim_grads, optim_grads_params };
constexpr auto option_names(Sharding) {
  return std::array{"no_shard", "optim", "optim_grads", "optim_grads_params"};
}

// What groups of ranks that each have all shards divide among each other.
enum class OuterSharding : uint8_t { no_shard, optim };
constexpr auto option_names(OuterSharding) { return std::array{"no_shard", "optim"}; }

}  // namespace phx
