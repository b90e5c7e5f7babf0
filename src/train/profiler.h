// --profile: a window of iterations as a picture. Every profiled rank writes what its streams did
// as trace events, which Perfetto and chrome://tracing open; where several ranks do, they lie in
// one file, on one clock. The first rank says which kernels took the time. A profiler that looks on
// from outside (nsys profile -c cudaProfilerApi) is told of the same window.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/base/terminal.h"
#include "phalanx/core/op_trace.h"
#include "phalanx/parallel/mesh.h"
#include "phalanx/train/train_config.h"

namespace phx {

class Profiler {
 public:
  Profiler(const TrainConfig& config, const Mesh& mesh, Runtime& runtime, Terminal& terminal);

  // Called by all ranks before the iteration after `done` ones is enqueued; opens or closes the
  // window, which is from --profile-step-start to --profile-step-end, as Megatron counts.
  void before_iteration(int64_t done);
  void finish(int64_t done);  // the run is over, maybe within the window

 private:
  bool profiled(int rank) const;
  void open(int64_t done);
  void close(int64_t done);
  Path file_of(int rank) const;
  std::string events_of_ranks() const;
  bool write(const Path& path, const std::string& lines) const;

  const TrainConfig& config_;
  const Mesh& mesh_;
  Runtime& runtime_;
  Terminal& terminal_;
  std::unique_ptr<OpTrace> trace_;
  bool open_ = false, first_ = true;
  bool told_ = false;  // of a window, or of why there is none
  int64_t opened_at_ = 0;
  double offset_us_ = 0;  // of this rank's trace, on the clock of all
};

}  // namespace phx
