#include "phalanx/parallel/pipeline/schedule_kind.h"

namespace phx {

std::vector<ScheduleKind> standard_schedule_kinds() {
  return {
      {.name = "1f1b",
       .help = "a forward and a backward in turn; interleaved with several chunks a rank",
       .make =
           [](const ScheduleConfig& config, const OwnOptions&) {
             return config.chunks > 1 ? interleaved_one_f_one_b(config) : one_f_one_b(config);
           },
       .problems =
           [](const ScheduleConfig& config) {
             return config.chunks > 1 ? interleaving_problems(config) : Problems{};
           }},
      {.name = "zb-h1",
       .help = "puts off weight gradients to fill the bubble",
       .make = [](const ScheduleConfig& config,
                  const OwnOptions&) { return zero_bubble_h1(config); },
       .several_chunks = false},
  };
}

}  // namespace phx
