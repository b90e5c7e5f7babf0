#include "phalanx/plan/start_memory.h"

#include "phalanx/train/save_session.h"

namespace phx {

namespace {

// A cut within a row makes four boxes of one: rows, the row's two parts, rows.
constexpr int64_t kMorePiecesOfCut = 3;

// Of one state of the store's parameters on a grid, on all ranks of the stage. `ranges`: how many
// the data-parallel ranks cut into a share each.
ListedPieces listed(const ParameterStore& store, const FlatState& state, const Mesh& mesh,
                    Grid grid, int64_t ranges) {
  const FlatRange all = store.all();
  const auto on_grid = [&](const Parameter& p) { return p.axes().grid == grid; };
  ListedPieces of_model_part =
      listed_pieces(boxes_of(store, {state.prefix, state.flat}, {&all, 1}, on_grid));
  if (of_model_part.pieces == 0) return {};
  const int64_t cuts = ranges * (mesh.data_size(grid) - 1) * kMorePiecesOfCut;
  const int64_t parts = mesh.size() / mesh.sizes().pp / mesh.data_size(grid);
  return {.pieces = parts * (of_model_part.pieces + cuts),
          .blocks = parts * (of_model_part.blocks + cuts)};
}

ListedPieces listed_of_stage(const Session& session) {
  ListedPieces sum;
  const auto add = [&](const ParameterStore& store, const FlatState& state) {
    if (store.parameters().empty()) return;
    for (const Grid grid : {Grid::dense, Grid::expert}) {
      const ListedPieces more =
          listed(store, state, session.mesh, grid, int64_t(store.buckets().size()));
      sum.pieces += more.pieces;
      sum.blocks += more.blocks;
    }
  };
  for (const FlatState& state : states_of(session, session.config.train.save_optim))
    add(session.store, state);
  for (const ParameterStore* whole : {&session.frozen, &session.buffers})
    add(*whole, {"", whole->weights()});
  return sum;
}

}  // namespace

StartMemory start_memory(const Session& session) {
  Runtime& runtime = session.store.weights().runtime();
  return {.device = runtime.allocator().report(),
          .host = host_memory(runtime),
          .listed_of_stage = listed_of_stage(session)};
}

}  // namespace phx
