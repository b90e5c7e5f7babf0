// Flags that are sound but idle in this run. Megatron's recipes carry them along, so they are no
// errors: a line of the log says of each why it has no effect.
#pragma once

#include "phalanx/cli/pretrain_options.h"

namespace phx {

// At TP 1, where Megatron switches it off too.
void drop_sequence_parallel(ParallelConfig& ranks, ParseReport& report);
// Adds them to report.implied.
void note_idle_flags(const OptionSet& options, const PretrainOptions& values, ParseReport& report);

}  // namespace phx
