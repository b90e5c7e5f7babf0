// A run that is stopped halfway, saved and resumed, against the same run in one go: on the same
// layout every loss, every gradient norm and every byte of weights, masters and moments is the
// same.
#pragma once

#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/train/session.h"

namespace phx {

struct ResumeProof {
  int64_t tensors = 0, bytes = 0;   // of the last checkpoint, optimizer state included
  int64_t skipped_iterations = 0;   // by a loss scale that was too large
  std::vector<double> losses;       // of the run in one go
  std::vector<std::string> faults;  // what differs, a line each; empty: nothing
};

// Trains `iterations`, and once more with a stop in the middle, on `world` ranks that are threads
// of this process. What the config says of where to save and load, of logs and the run's length is
// replaced; checkpoints go into `folder`, which is there and empty.
ResumeProof prove_resume(const RunConfig& config, const Sources& sources, int world,
                         int64_t iterations, const Path& folder);

}  // namespace phx
