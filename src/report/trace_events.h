// What a rank's streams did, as trace events: a JSON file that Perfetto and chrome://tracing open.
#pragma once

#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/core/op_trace.h"

namespace phx {

struct TraceRank {
  int rank = 0;
  std::string title;     // of its group of lanes
  double offset_us = 0;  // of its records, on the clock of all ranks
};

// Trace events, one a line with commas between. Phases lie around their kernels on the lane of
// their stream, and once more on the host's lane: there one sees how far the host is ahead.
std::string trace_events(const std::vector<OpRecord>& records, const TraceRank& rank);

// A file of events: "[", the lines, "]". And the lines of such a file, so that the files of several
// ranks can be put into one.
void write_trace(const Path& path, const std::string& lines);
std::string trace_lines(const Path& path);

}  // namespace phx
