// Megatron's console lines, character for character, so that scripts that read them keep working.
#pragma once

#include <chrono>
#include <string>

#include "phalanx/report/iteration_report.h"

namespace phx {

// "2026-08-22 12:00:00.000000", in local time
std::string time_stamp(std::chrono::system_clock::time_point time);

// " [<stamp>] iteration        1/  100000 | consumed samples: ..."; fields that Megatron does not
// have stand at the end. A negative loss is left out, as in Megatron.
std::string log_line(const IterationReport& report, const std::string& stamp);

// Three lines: dashes, " validation loss at iteration 1000 | lm loss value: ... | ", dashes.
std::string validation_block(const ValidationReport& report);

}  // namespace phx
