// Who holds the same weights and sees other samples.
#pragma once

#include "phalanx/comm/communicator.h"
#include "phalanx/nn/axes.h"

namespace phx {

// A group of ranks by the grid of a parameter; null: one rank.
struct GridRanks {
  Communicator* dense = nullptr;
  Communicator* expert = nullptr;
  Communicator* of(Grid grid) const { return grid == Grid::dense ? dense : expert; }
  int size(Grid grid) const { return of(grid) == nullptr ? 1 : of(grid)->size(); }
};

struct DataRanks {
  GridRanks shards;  // that have a piece each of what is sharded, all together all of it
  GridRanks copies;  // that have the same piece, of shards that are kept several times
};

}  // namespace phx
