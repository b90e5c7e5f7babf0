// metrics.jsonl: one JSON object a line for each report, flushed, so that a run can be watched and
// plotted while it goes on:
//   {"iteration":10,"consumed samples":320,"learning rate":0.001,...,"lm loss":2.31,...}
//   {"iteration":100,"consumed samples":3200,"validation":{"lm loss":2.2}}
// A value that is not finite is null, since JSON has no NaN.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/report/iteration_report.h"

namespace phx {

class MetricsFile {
 public:
  // Goes on after `resume_iteration`: lines of later iterations, which a run wrote that stopped
  // before its next checkpoint, are taken out. 0 starts a new file; an older one becomes FILE.old.
  MetricsFile(const Path& path, int64_t resume_iteration);
  explicit MetricsFile(const Path& path);  // goes on behind what is there

  void write(const IterationReport& report);
  void write(const ValidationReport& report);
  bool in_place() const { return file_.in_place(); }

 private:
  AppendFile file_;
};

// What is a mistake of the command line, and not of the disk: throws if `path` is no regular file,
// or lies in a folder that is not there.
void check_metrics_path(const Path& path);

// What a plot needs of a metrics file.
struct LossHistory {
  std::vector<std::pair<double, double>> train;       // iteration, loss
  std::vector<std::pair<double, double>> validation;  // of the first validation set
};

// The losses called `name`; lines without it, and values that are not numbers, are passed over. An
// error if there is none at all.
LossHistory read_losses(const Path& path, const std::string& name = "lm loss");

// How busy the experts of a layer were (--moe-per-layer-logging): iteration, and each expert's rows
// as a multiple of the mean. An error if the file has none.
using ExpertLoads = std::vector<std::pair<double, std::vector<double>>>;
ExpertLoads read_expert_loads(const Path& path, int64_t layer);

}  // namespace phx
