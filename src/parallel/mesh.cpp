#include "parallel/mesh.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace phx {

namespace {

std::vector<int> part_with(int rank, const std::vector<int>& group, int size) {
  for (const auto& part : consecutive_parts({group}, size))
    if (std::ranges::find(part, rank) != part.end()) return part;
  return {rank};
}

}  // namespace

Mesh::Mesh(World& world, const MeshOptions& options) : options_(options), rank_(world.rank()) {
  PHX_CHECK(world.size() == size(), "the mesh has ", size(), " ranks, but there are ",
            world.size());
  const RankGrid grid(options.sizes, options.order);
  std::vector<int> everybody(static_cast<size_t>(size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  world_ = make(world, std::move(everybody), "world");
  tp_ = make(world, grid.group_of(rank_, "tp"), "tp");
  dp_ = make(world, grid.group_of(rank_, "dp-cp"), "dp-cp");
  if (options.key_sharers > 1)
    key_sharers_ =
        make(world, part_with(rank_, grid.group_of(rank_, "tp"), options.key_sharers), "key group");
  const std::vector<int> pipeline = grid.group_of(rank_, "pp");
  if (pipeline.size() > 1 && options.tied_embedding && (first_stage() || last_stage()))
    embedding_ = make(world, {pipeline.front(), pipeline.back()}, "embedding");
  if (pipeline.size() > 1) pipeline_.emplace(world, pipeline, options.chunks);
}

std::unique_ptr<Communicator> Mesh::make(World& world, std::vector<int> ranks, const char* name) {
  if (ranks.size() == 1) return nullptr;
  auto group = world.group(std::move(ranks), name);
  group->barrier();
  return group;
}

int Mesh::index(const char* axis) const {
  if (size() == 1) return 0;
  return RankGrid(options_.sizes, options_.order).index(rank_, axis);
}

}  // namespace phx
