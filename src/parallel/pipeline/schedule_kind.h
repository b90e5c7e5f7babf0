// What --pipeline-schedule NAME means: a function that returns the schedule as data. The engine
// checks the schedule before it runs it. So a wrong schedule ends with an error, not with a hang.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/own_options.h"
#include "phalanx/parallel/pipeline/schedule.h"

namespace phx {

struct ScheduleKind {
  std::string name, help;
  // For two stages or more.
  std::function<Schedule(const ScheduleConfig& config, const OwnOptions& options)> make;
  bool several_chunks = true;  // whether a rank may have several chunks of layers
  // Why this schedule does not work for `config`; checked before the run. Unset: it always works.
  std::function<Problems(const ScheduleConfig& config)> problems = {};
  OwnOptions options = {};
};
std::vector<ScheduleKind> standard_schedule_kinds();  // "1f1b", "zb-h1"

}  // namespace phx
