#include "phalanx/cli/not_in_this_build.h"

#include "phalanx/base/error.h"
#include "phalanx/base/named_entry.h"
#include "phalanx/train/context_layout.h"

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
  if (options.train.device == DeviceChoice::cuda) {
    const Problems more = not_on_gpus(options);
    problems.insert(problems.end(), more.begin(), more.end());
  }
  return problems;
}

Problems not_on_gpus(const PretrainOptions& options) {
  const Dataset* own = find_entry(options.catalogue.datasets, options.data.dataset);
  const bool packed = options.sft.sft || options.data.dataloader_inter_document_masking ||
                      options.data.reset_attention_mask ||
                      (own != nullptr && own->parts.cu_seqlens);
  return context_device_problems(options.model, options.parallel, packed);
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
