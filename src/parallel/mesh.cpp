#include "phalanx/parallel/mesh.h"

#include <algorithm>
#include <numeric>

#include "phalanx/base/error.h"

namespace phx {

namespace {

std::vector<int> part_with(int rank, const std::vector<int>& group, int size) {
  for (const auto& part : consecutive_parts({group}, size))
    if (std::ranges::find(part, rank) != part.end()) return part;
  return {rank};
}

}  // namespace

Mesh::Mesh(World& world, const MeshOptions& options)
    : options_(options),
      grids_{
          RankGrid(options.sizes, options.order),
          RankGrid(phx::expert_sizes(options.sizes, options.ep,
                                     options.expert_tp > 0 ? options.expert_tp : options.sizes.tp),
                   options.order),
          options.shard_copies},
      rank_(world.rank()) {
  PHX_CHECK(world.size() == size(), "the mesh has ", size(), " ranks, but there are ",
            world.size());
  const RankGrid& grid = grids_.dense;
  std::vector<int> everybody(static_cast<size_t>(size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  world_ = make(world, std::move(everybody), "world");
  tp_ = make(world, grid.group_of(rank_, "tp"), "tp");
  make_context_groups(world);
  dp_cp_ = make(world, data_ranks(Grid::dense), "dp-cp");
  if (options.shard_copies > 1) make_shard_groups(world, Grid::dense);
  if (options.key_sharers > 1)
    key_sharers_ =
        make(world, part_with(rank_, grid.group_of(rank_, "tp"), options.key_sharers), "key group");
  if (options.experts) {
    expert_dp_ = make(world, data_ranks(Grid::expert), "expert dp");
    if (options.shard_copies > 1) make_shard_groups(world, Grid::expert);
    dispatch_ = make(world, grids_.expert.group_of(rank_, "tp-ep"), "expert tp-ep");
    if (dispatch_) dispatch_->connect_pairs();
    tp_cp_ = make(world, grid.group_of(rank_, "tp-cp"), "tp-cp");
  }
  const std::vector<int> pipeline = grid.group_of(rank_, "pp");
  if (std::ranges::find(options.embedding_stages, pp_rank()) != options.embedding_stages.end()) {
    std::vector<int> holders;
    for (const int stage : options.embedding_stages) holders.push_back(pipeline.at(size_t(stage)));
    embedding_ = make(world, std::move(holders), "embedding");
  }
  if (pipeline.size() > 1) pipeline_.emplace(world, pipeline, options.chunks);
}

void Mesh::make_context_groups(World& world) {
  const std::vector<int> ranks = grids_.dense.group_of(rank_, "cp");
  cp_ = make(world, ranks, "cp");
  if (cp_) cp_->connect_pairs();
  const int inner = options_.cp_inner, size = int(ranks.size());
  PHX_CHECK(size % inner == 0, inner, " neighbours that exchange heads do not divide ", size,
            " context-parallel ranks");
  if (inner == 1 || inner == size) return;
  cp_inner_ = make(world, part_with(rank_, ranks, inner), "cp neighbours");
  cp_inner_->connect_pairs();
  std::vector<int> others;
  for (int i = cp_->rank() % inner; i < size; i += inner) others.push_back(ranks[size_t(i)]);
  cp_outer_ = make(world, std::move(others), "cp ring");
  cp_outer_->connect_pairs();
}

// The ranks of a group with a shard each follow each other, so that they are near.
void Mesh::make_shard_groups(World& world, Grid grid) {
  const std::vector<int> ranks = data_ranks(grid);
  const size_t shards = ranks.size() / size_t(options_.shard_copies);
  const auto own = size_t(std::ranges::find(ranks, rank_) - ranks.begin());
  std::vector<int> with_others, with_same;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i / shards == own / shards) with_others.push_back(ranks[i]);
    if (i % shards == own % shards) with_same.push_back(ranks[i]);
  }
  const bool dense = grid == Grid::dense;
  ShardGroups& groups = hybrid_[size_t(grid)];
  groups.shards = make(world, std::move(with_others), dense ? "shards" : "expert shards");
  groups.copies = make(world, std::move(with_same), dense ? "shard copies" : "expert shard copies");
}

std::unique_ptr<Communicator> Mesh::make(World& world, std::vector<int> ranks, const char* name) {
  if (ranks.size() == 1) return nullptr;
  auto group = world.group(std::move(ranks), name);
  group->barrier();
  return group;
}

int Mesh::index(Axis axis) const { return grids_.dense.index(rank_, name_of(axis)); }

std::vector<int> Mesh::data_ranks(Grid grid) const {
  const Axes data = ownership_of({.grid = grid}).data;
  std::string along;
  for (const Axis axis : kAllAxes)
    if (data.has(axis)) along += str_cat(along.empty() ? "" : "-", name_of(axis));
  return grids_.of(grid).group_of(rank_, along);
}

Communicator* Mesh::summed_after(Axis axis) const {
  if (axis == Axis::tp) return tp();
  if (axis == Axis::pp) return embedding();
  throw_error(
      str_cat("gradients are summed after the buckets over tp and pp, not over ", name_of(axis)));
}

Ownership Mesh::ownership_of(const ParameterAxes& axes) const {
  Ownership ownership = phx::ownership_of(axes, grids_, rank_);
  PHX_ASSERT(ownership.data == phx::ownership_of({.grid = axes.grid}, grids_, rank_).data,
             "buckets of one grid are summed over one group, and a parameter needs another");
  return ownership;
}

}  // namespace phx
