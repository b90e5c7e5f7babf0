// What a device did, piece by piece: for a benchmark's table and a profile's picture. While a trace
// lives, every kernel front and every collective marks its begin and end on its stream and counts
// its FLOPs and bytes, and the phases of a step do so around them. Costs two events a piece and no
// waiting.
#pragma once

#include <string>
#include <vector>

#include "phalanx/core/runtime.h"

namespace phx {

enum class OpKind : uint8_t { kernel, communication, phase };

struct OpRecord {
  std::string name;
  Cost cost;
  double begin_ms, end_ms;  // on the device, since the trace began
  OpKind kind = OpKind::kernel;
  StreamName stream = StreamName::compute;
  double host_begin_ms = 0, host_end_ms = 0;  // when the host enqueued it
};

struct OpTraceOptions {
  bool times = true;    // else nothing is recorded
  bool ranges = false;  // tell profilers that look on from outside (NVTX)
};

class OpTrace {
 public:
  explicit OpTrace(Runtime& runtime, const OpTraceOptions& options = {});  // one at a time
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  // What was enqueued since the last call, in order of beginning; waits for the device.
  std::vector<OpRecord> collect();

 private:
  friend class OpScope;
  struct Pending {
    OpRecord record;
    TimeMark begin, end;
  };
  double host_ms() const;

  Runtime& runtime_;
  OpTraceOptions options_;
  TimeMark start_;
  double host_start_ms_ = 0;
  std::vector<Pending> pending_;
  bool inside_ = false;  // of a kernel or collective: those that it is made of are part of it
};

// How a piece of work is called: "matmul", "all_reduce tp", "forward 3", "forward 3 of chunk 1".
struct OpLabel {
  const char* what;
  const char* of = "";
  int number = -1, chunk = 0;
  OpKind kind = OpKind::kernel;
  StreamName stream = StreamName::compute;
};

// Stands in every kernel front, every collective, and around the phases of a step.
class OpScope {
 public:
  OpScope(Runtime& runtime, const OpLabel& label) : trace_(runtime.trace()) {
    if (trace_ != nullptr) begin(label);
  }
  OpScope(Runtime& runtime, const char* kernel) : OpScope(runtime, OpLabel{kernel}) {}
  ~OpScope() {
    if (trace_ != nullptr) end();
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  bool traced() const { return traced_; }  // its time is recorded, and its cost to be counted

 private:
  void begin(const OpLabel& label);
  void end() noexcept;
  OpTrace* trace_;
  size_t index_ = 0;  // among the trace's pending ones
  Cost before_;
  bool phase_ = false, traced_ = false;
};

// All kernels and collectives of one name and cost, over a number of steps.
struct OpTotal {
  std::string name;
  Cost cost;  // of one
  int64_t count = 0;
  double ms = 0;  // of all
};
std::vector<OpTotal> totals_of(const std::vector<OpRecord>& records);  // the longest first

}  // namespace phx
