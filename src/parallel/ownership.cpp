#include "phalanx/parallel/ownership.h"

#include "phalanx/base/error.h"

namespace phx {

AxisSizes expert_sizes(const AxisSizes& dense, int ep, int tp) {
  const int in_stage = dense.world() / dense.pp;
  PHX_CHECK(ep >= 1 && tp >= 1 && in_stage % (ep * tp) == 0, "a stage of ", in_stage,
            " ranks cannot be cut into expert parallel ", ep, " x expert tensor parallel ", tp);
  return {.tp = tp, .cp = 1, .ep = ep, .dp = in_stage / (ep * tp), .pp = dense.pp};
}

Ownership ownership_of(const ParameterAxes& axes, const Grids& grids, int rank) {
  const RankGrid& grid = grids.of(axes.grid);
  Ownership ownership;
  for (const Axis axis : kAllAxes) {
    const char* name = name_of(axis);
    PHX_ASSERT(!(axes.cut.has(axis) && axes.partial.has(axis)), "a parameter is both cut over ",
               name, " and repeated over it");
    if (axes.cut.has(axis) || grid.sizes().of(name) == 1) continue;
    const bool first = grid.index(rank, name) == 0;
    const bool data = axis == Axis::dp || axis == Axis::cp;
    PHX_ASSERT(!data || axes.partial.has(axis), "ranks along ", name,
               " see different tokens, so gradients differ");
    ownership.repeated.add(axis);
    if (data) {
      ownership.data.add(axis);
      ownership.data_ranks *= grid.sizes().of(name);
      ownership.first_of_data = ownership.first_of_data && first;
      if (axis == Axis::dp)
        ownership.first_copy = grid.index(rank, name) < grid.sizes().dp / grids.copies;
    } else {
      if (axes.partial.has(axis)) ownership.summed_after.add(axis);
      ownership.speaks = ownership.speaks && first;
    }
  }
  return ownership;
}

}  // namespace phx
