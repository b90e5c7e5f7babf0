// The links of a rank with its neighbours in the pipeline: a group of two for each direction and
// each pair, so that a message that waits for its peer holds up none of another kind. The sender is
// rank 0 of the group, the receiver rank 1. With two ranks and several chunks both neighbours are
// the same rank, but the groups are still four.
#pragma once

#include <memory>
#include <vector>

#include "phalanx/comm/communicator.h"

namespace phx {

// Null where there is no such link: before the first rank and after the last one, unless the
// pipeline goes around in a ring because its ranks have several chunks.
struct PipelineLinks {
  Communicator* forward_in = nullptr;
  Communicator* forward_out = nullptr;
  Communicator* backward_in = nullptr;
  Communicator* backward_out = nullptr;
};

// Makes the groups, and owns them. Called by all ranks of the pipeline.
class PipelineGroups {
 public:
  // `pipeline` are the world ranks of the stages, in order, with this rank among them.
  PipelineGroups(World& world, const std::vector<int>& pipeline, int chunks);

  PipelineLinks links() const {
    return {forward_in_.get(), forward_out_.get(), backward_in_.get(), backward_out_.get()};
  }

 private:
  std::unique_ptr<Communicator> forward_in_, forward_out_, backward_in_, backward_out_;
};

}  // namespace phx
