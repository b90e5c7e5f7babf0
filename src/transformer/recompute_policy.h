// What is computed again in the backward instead of being kept, and what is kept elsewhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace phx {

struct RecomputePolicy {
  // Whole layers. uniform: units of num_layers, only their inputs are kept; block: the first
  // num_layers of each pipeline chunk.
  enum class Layers : uint8_t { none, uniform, block } layers = Layers::none;
  int64_t num_layers = 1;
  bool keep_attention = false;  // what attention found is not computed again with its layer
  // The MLP's pieces of the sequence, of which one at a time takes memory (more than 1: each is
  // computed again in the backward).
  int64_t mlp_pieces = 1;
  // Of the last part that is computed again with its layer: nobody reads what comes out.
  bool output_unused = false;
  // Of every other layer: whole parts by name ("mlp"), and what parts know to leave out.
  std::vector<std::string> parts = {};
  bool core_attention = false;
  bool up_projections = false;     // latent attention, from its latent vectors on
  bool norms = false;              // the input of QKV and fc1, from what was normalised
  bool activation = false;         // the input of fc2, from fc1's output
  bool expert_activation = false;  // the same of experts
  bool shared_expert = false;      // and of the shared expert
  // What these many first layers keep waits for the backward in host memory.
  int64_t offloaded_layers = 0;

  // Inside of what is computed again as a whole.
  RecomputePolicy inside() const {
    RecomputePolicy policy;
    policy.mlp_pieces = mlp_pieces;
    return policy;
  }
  bool recomputes(const std::string& part) const {
    return std::ranges::find(parts, part) != parts.end();
  }
};

}  // namespace phx
