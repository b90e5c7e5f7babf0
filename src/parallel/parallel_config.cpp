#include "phalanx/parallel/parallel_config.h"

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"

namespace phx {

std::vector<Rule> parallel_rules() {
  const auto not_yet = [](const OptionSet& options, Problems& problems) {
    for (const char* name : {"context-parallel-size"}) {
      if (options.number(name) == 1) continue;
      problems.push_back(
          {ProblemKind::refused, str_cat("--", name),
           shown(options, name) + ": this kind of parallelism is not in this build yet",
           str_cat("use --", name, " 1")});
    }
  };
  return {
      {"context parallelism is not in this build yet", not_yet},
      requires_option("overlap-param-gather", "use-distributed-optimizer",
                      "without it every rank has all weights already"),
      requires_option("overlap-param-gather", "overlap-grad-reduce", "both use the same buckets"),
      requires_option("grad-reduce-in-bf16", "bf16",
                      "gradients are never narrower than the weights"),
      at_most_one({"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank",
                   "pipeline-model-parallel-layout"},
                  "each says how many chunks a pipeline rank has"),
  };
}

}  // namespace phx
