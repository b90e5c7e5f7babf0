// Where a conversion may write: never into the checkpoints of a run, whose newest it would replace.
#pragma once

#include "phalanx/base/file.h"

namespace phx {

// An error if `folder`, the value of `flag`, holds checkpoints: iter_* or the file that names the
// newest. What a stopped conversion left as iter_*.tmp is none.
void check_holds_no_checkpoint(const char* flag, const Path& folder);

}  // namespace phx
