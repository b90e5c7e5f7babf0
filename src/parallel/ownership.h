// Who does what with a parameter, from its axes, the two grids and a rank's number alone. Norm,
// reductions, checkpoints and sharded optimizers ask here, through the mesh; nobody derives any of
// this elsewhere.
//
// Random numbers need no owner: initial weights are drawn by name and global index, so all holders
// of an element draw the same number.
#pragma once

#include <cstdint>

#include "phalanx/nn/axes.h"
#include "phalanx/parallel/rank_grid.h"

namespace phx {

struct Grids {
  RankGrid dense, expert;
  int copies = 1;  // of what is sharded: ranks along dp are that many groups with a shard each
  const RankGrid& of(Grid grid) const { return grid == Grid::dense ? dense : expert; }
};
// The experts' grid of the same world: `ep` ranks share the experts of a layer, `tp` cut each one.
AxisSizes expert_sizes(const AxisSizes& dense, int ep, int tp);

// What the ranks along `data` below have of a parameter: each the whole; each group of those with a
// shard each (Grids::copies) the whole, cut over its ranks; each a piece of its own.
enum class Division : uint8_t { none, in_copies, among_all };

// Axes are named only where they have more than one rank (pp: more than one holder).
struct Ownership {
  // Buckets of gradients are summed over these, and a sharded optimizer cuts them over the same:
  // dp-cp, for experts dp. So many ranks.
  Axes data;
  int data_ranks = 1;
  // Afterwards what a rank owns of the gradient is summed over each of these: tp, pp.
  Axes summed_after;
  // Other ranks along these hold the same elements. `data` is among them.
  Axes repeated;
  // Of the ranks that hold the same elements and differ outside of `data`, this one counts them in
  // the norm and saves them.
  bool speaks = true;
  // Of the ranks along `data`, this is the first; it is in the first group with a shard each.
  bool first_of_data = true, first_copy = true;

  // Whether this rank counts its elements in the norm, and saves them.
  bool counts(Division division) const {
    return speaks && (division == Division::among_all ||
                      (division == Division::in_copies ? first_copy : first_of_data));
  }
};

// This rank holds a part of the parameter.
Ownership ownership_of(const ParameterAxes& axes, const Grids& grids, int rank);

}  // namespace phx
