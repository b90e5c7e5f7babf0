#include "phalanx/cli/not_in_this_build.h"

#include "phalanx/base/error.h"

namespace phx {

std::span<const LackingOption> lacking_options() {
  using Options = const PretrainOptions&;
  static const char* const logs = "this is not logged yet";
  static const char* const leave = "leave it out";
  static const LackingOption list[] = {
      {"--log-params-norm", logs, leave, [](Options o) { return o.train.log_params_norm; }},
      {"--log-num-zeros-in-grad", logs, leave,
       [](Options o) { return o.train.log_num_zeros_in_grad; }},
      {"--use-checkpoint-opt-param-scheduler",
       "schedules come from the flags; on resume other ones than the checkpoint's are an error",
       "leave it out, and give the schedules of the run that is resumed",
       [](Options o) { return o.optim.use_checkpoint_opt_param_scheduler; }},
  };
  return list;
}

Problems not_in_this_build(const PretrainOptions& options) {
  Problems problems;
  for (const LackingOption& lacking : lacking_options()) {
    if (!lacking.is_set(options)) continue;
    problems.push_back({ProblemKind::refused, lacking.flag, lacking.reason, lacking.hint});
  }
  return problems;
}

std::string format_notes(const Problems& problems) {
  if (problems.empty()) return "";
  std::string text = "note: this build cannot run these yet:\n";
  for (size_t i = 0; i < problems.size(); ++i) {
    const bool first = i == 0 || problems[i].text != problems[i - 1].text;
    const bool last = i + 1 == problems.size() || problems[i].text != problems[i + 1].text;
    text += (first ? "  " : ", ") + problems[i].flag;
    if (last) text += str_cat(": ", problems[i].text, "; ", problems[i].hint, "\n");
  }
  return text;
}

}  // namespace phx
