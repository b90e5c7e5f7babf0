// What a device did, kernel by kernel: for a benchmark's table and a profile's picture. While a
// trace lives, every kernel front marks its begin and end on the compute stream and counts its
// FLOPs and bytes. Costs two events a kernel and no waiting.
#pragma once

#include <string>
#include <vector>

#include "core/runtime.h"

namespace phx {

struct OpRecord {
  const char* name;
  Cost cost;
  double begin_ms, end_ms;  // on the device, since the trace began
};

class OpTrace {
 public:
  explicit OpTrace(Runtime& runtime);  // one at a time
  ~OpTrace();
  OpTrace(const OpTrace&) = delete;
  OpTrace& operator=(const OpTrace&) = delete;

  // What was enqueued since the last call, in order; waits for the device.
  std::vector<OpRecord> collect();

 private:
  friend class OpScope;
  struct Pending {
    const char* name;
    Cost before, after;
    TimeMark begin, end;
  };
  Runtime& runtime_;
  TimeMark start_;
  std::vector<Pending> pending_;
  bool open_ = false;  // kernels that others are made of are part of those
};

// Stands in every kernel front.
class OpScope {
 public:
  OpScope(Runtime& runtime, const char* name) : trace_(runtime.trace()) {
    if (trace_ != nullptr) begin(name);
  }
  ~OpScope() {
    if (trace_ != nullptr) end();
  }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;
  bool traced() const { return trace_ != nullptr; }

 private:
  void begin(const char* name);
  void end();
  OpTrace* trace_;
};

// All kernels of one name and cost, over a number of steps.
struct OpTotal {
  std::string name;
  Cost cost;  // of one
  int64_t count = 0;
  double ms = 0;  // of all
};
std::vector<OpTotal> totals_of(const std::vector<OpRecord>& records);  // the longest first

}  // namespace phx
