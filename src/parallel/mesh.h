// A rank's place among all ranks, and its groups. Handed to whoever needs it: no layer reaches for
// a global group. A group of one is no group: its pointer is null.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/comm/communicator.h"
#include "phalanx/nn/axes.h"
#include "phalanx/parallel/ownership.h"
#include "phalanx/parallel/pipeline/links.h"
#include "phalanx/parallel/rank_grid.h"

namespace phx {

struct MeshOptions {
  AxisSizes sizes;
  std::string order = kDefaultOrder;
  // Tensor-parallel ranks that share a key group (more ranks than groups); 1: none do.
  int key_sharers = 1;
  int chunks = 1;  // that a pipeline rank has
  // The experts' grid; expert_tp 0: the dense layers' tp. Without experts it has no groups.
  bool experts = false;
  int ep = 1, expert_tp = 0;
  // Of context-parallel ranks: neighbours that exchange heads for positions (a2a+p2p); 1: none do.
  int cp_inner = 1;
  // Groups of data-parallel ranks that each have all shards (hybrid sharding); 1: one group.
  int shard_copies = 1;
  // Which stages have the word embedding: the first; the last, when it is tied to the head; the one
  // with multi-token prediction. Ascending.
  std::vector<int> embedding_stages = {0};
};

class Mesh {
 public:
  Mesh() = default;  // one rank
  // Collective: makes the groups of `world`, in the same order on every rank, and lets each say
  // hello, so that a rank that is missing is found before anything else is made.
  Mesh(World& world, const MeshOptions& options);

  const AxisSizes& sizes() const { return options_.sizes; }
  int rank() const { return rank_; }
  int size() const { return options_.sizes.world(); }
  int tp_rank() const { return index(Axis::tp); }
  int pp_rank() const { return index(Axis::pp); }
  int dp_rank() const { return index(Axis::dp); }  // along dp alone: which samples it reads
  int cp_rank() const { return index(Axis::cp); }
  bool first_stage() const { return pp_rank() == 0; }
  bool last_stage() const { return pp_rank() == sizes().pp - 1; }

  Communicator* world() const { return world_.get(); }
  Communicator* tp() const { return tp_.get(); }
  // Ranks that share every sequence; of those, cp_inner neighbours, and the ranks that have the
  // same place among their neighbours. The last two are null unless both are several.
  Communicator* cp() const { return cp_.get(); }
  Communicator* cp_inner() const { return cp_inner_.get(); }
  Communicator* cp_outer() const { return cp_outer_.get(); }
  // Ranks that hold the same dense weights and see different samples or positions.
  Communicator* dp_cp() const { return dp_cp_.get(); }
  Communicator* key_sharers() const { return key_sharers_.get(); }
  // Ranks that hold the same experts and see different tokens.
  Communicator* expert_dp() const { return expert_dp_.get(); }
  // Over whom the buckets of a grid are summed and a sharded optimizer is cut: Ownership::data.
  Communicator* data(Grid grid) const { return grid == Grid::dense ? dp_cp() : expert_dp(); }
  int data_size(Grid grid) const { return ownership_of({.grid = grid}).data_ranks; }
  int data_rank(Grid grid) const { return data(grid) == nullptr ? 0 : data(grid)->rank(); }
  // Of those, the ranks with a shard each, and the ranks with this rank's shard.
  Communicator* shards(Grid grid) const {
    return options_.shard_copies == 1 ? data(grid) : hybrid_[size_t(grid)].shards.get();
  }
  Communicator* shard_copies(Grid grid) const { return hybrid_[size_t(grid)].copies.get(); }
  // Ranks that hold the experts of one layer together, and hand each other tokens.
  Communicator* dispatch() const { return dispatch_.get(); }
  // Ranks that share the tokens of a micro-batch.
  Communicator* tp_cp() const { return tp_cp_.get(); }
  const AxisSizes& expert_sizes() const { return grids_.expert.sizes(); }
  int expert_index(Axis axis) const { return grids_.expert.index(rank_, name_of(axis)); }
  // The stages that have the word embedding, if they are several; null on the others.
  Communicator* embedding() const { return embedding_.get(); }
  // Over whom what a rank owns of a gradient is summed after the buckets: see Ownership.
  Communicator* summed_after(Axis axis) const;
  Ownership ownership_of(const ParameterAxes& axes) const;
  PipelineLinks links() const { return pipeline_ ? pipeline_->links() : PipelineLinks{}; }

 private:
  int index(Axis axis) const;
  std::vector<int> data_ranks(Grid grid) const;
  std::unique_ptr<Communicator> make(World& world, std::vector<int> ranks, const char* name);
  void make_context_groups(World& world);
  void make_shard_groups(World& world, Grid grid);

  MeshOptions options_;
  Grids grids_{RankGrid({}), RankGrid({})};
  int rank_ = 0;
  std::unique_ptr<Communicator> world_, tp_, cp_, dp_cp_, key_sharers_, embedding_;
  std::unique_ptr<Communicator> cp_inner_, cp_outer_;
  std::unique_ptr<Communicator> expert_dp_, dispatch_, tp_cp_;  // with experts only
  struct ShardGroups {
    std::unique_ptr<Communicator> shards, copies;
  };
  std::array<ShardGroups, 2> hybrid_;  // by grid; none with one copy
  std::optional<PipelineGroups> pipeline_;
};

}  // namespace phx
