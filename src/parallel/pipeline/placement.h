// Which rank holds which layers. With P stages and V chunks a stage the model is cut into P * V
// pieces; piece i lies on rank i mod P as its chunk i / P, so a micro-batch visits all ranks in a
// circle, V times:
//
//   8 layers, P = 2, V = 2:   rank 0: chunk 0 = [0, 1], chunk 1 = [4, 5]   (and the embedding)
//                             rank 1: chunk 0 = [2, 3], chunk 1 = [6, 7]   (and the loss)
//
// Everything here is a pure function of the config, so that every rank, the planner and the
// checkpoint converter agree without talking to each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/problem.h"

namespace phx {

struct PlacementConfig {
  int num_layers = 1;                   // --num-layers
  int stages = 1;                       // --pipeline-model-parallel-size (P)
  int chunks = 1;                       // --num-virtual-stages-per-pipeline-rank (V)
  std::optional<int> layers_per_chunk;  // --num-layers-per-virtual-pipeline-stage, instead of V
  // Layers on the first and last rank, over all its chunks; the ranks between share the rest
  // evenly.
  std::optional<int> first_stage_layers;  // --decoder-first-pipeline-num-layers
  std::optional<int> last_stage_layers;   // --decoder-last-pipeline-num-layers
  // The embedding (the loss) counts as a layer: the piece that holds it has a layer less.
  bool account_for_embedding = false;  // --account-for-embedding-in-pipeline-split
  bool account_for_loss = false;       // --account-for-loss-in-pipeline-split
  std::string layout;                  // --pipeline-model-parallel-layout; it decides V too
  int num_mtp_layers = 0;              // --mtp-num-layers; on the last piece unless the layout says
  bool position_table = false;         // positions are learned
};

struct ChunkPlacement {
  int first_layer = 0;  // global index
  int num_layers =
      0;  // may be 0: a piece of embedding or loss alone, or an empty stage of a layout
  int num_mtp_layers = 0;
  bool has_embedding = false;
  bool has_loss = false;  // final norm, head and loss

  std::vector<int> layers() const;  // global indices, ascending without gaps
  bool operator==(const ChunkPlacement&) const = default;
};

struct Placement {
  int stages = 1, chunks = 1;
  std::vector<std::vector<ChunkPlacement>> ranks;  // [pipeline rank][chunk]

  const ChunkPlacement& at(int rank, int chunk) const { return ranks[rank][chunk]; }
  // The rank with the layers of multi-token prediction.
  std::optional<int> mtp_stage() const;
  // Whether a token has been through these layers before it comes to this chunk.
  bool behind_mtp(int rank, int chunk) const;
  // Those that have the word embedding, ascending. `tied`: the head uses it.
  std::vector<int> embedding_stages(bool tied) const;
};

// What is wrong with a config, each with values, rule and way out; empty if nothing is.
Problems placement_problems(const PlacementConfig& config);

// Throws an Error with all problems.
Placement place_layers(const PlacementConfig& config);

}  // namespace phx
