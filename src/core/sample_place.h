// Where the samples of a micro-batch stand among all samples of a run. Random decisions are keyed
// by it, so that they do not depend on how samples are spread over ranks and micro-batches.
#pragma once

#include <cstdint>

namespace phx {

struct SamplePlace {
  int64_t first = 0;   // global index of the first one
  int64_t stride = 1;  // from one to the next
  int64_t tokens = 0;  // of a sample, where one row holds several; 0: a row is one sample
};

}  // namespace phx
