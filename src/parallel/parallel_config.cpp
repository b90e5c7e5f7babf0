#include "parallel/parallel_config.h"

#include "base/error.h"
#include "base/option_rules.h"

namespace phx {

std::vector<Rule> parallel_rules() {
  // The one place that keeps runs to a single rank. With it gone, the rules of the layouts follow.
  const auto single_rank = [](const OptionSet& options, Problems& problems) {
    for (const char* name : {"tensor-model-parallel-size", "pipeline-model-parallel-size",
                             "context-parallel-size", "expert-model-parallel-size"}) {
      if (options.number(name) == 1) continue;
      problems.push_back({ProblemKind::refused, str_cat("--", name),
                          shown(options, name) + ": multi-rank training is not in this build yet",
                          str_cat("use --", name, " 1")});
    }
  };
  return {{"parallel sizes are 1: multi-rank training is not in this build yet", single_rank}};
}

}  // namespace phx
