#include "phalanx/parallel/pipeline/links.h"

namespace phx {

PipelineGroups::PipelineGroups(World& world, const std::vector<int>& pipeline, int chunks) {
  const int stages = static_cast<int>(pipeline.size());
  if (stages == 1) return;
  // Link by link around the ring, in the same order everywhere: ranks that make a group together
  // find each other without waiting in a circle.
  for (int i = 0; i < 2 * stages; ++i) {
    const bool forward = i < stages;
    const int sender = i % stages;
    const int receiver = (sender + (forward ? 1 : stages - 1)) % stages;
    const bool around = sender == (forward ? stages - 1 : 0);
    const bool mine = pipeline[sender] == world.rank() || pipeline[receiver] == world.rank();
    if (!mine || (around && chunks == 1)) continue;
    auto group =
        world.group({pipeline[sender], pipeline[receiver]}, forward ? "pp-forward" : "pp-backward");
    auto& in = forward ? forward_in_ : backward_in_;
    auto& out = forward ? forward_out_ : backward_out_;
    (group->rank() == 0 ? out : in) = std::move(group);
  }
}

}  // namespace phx
