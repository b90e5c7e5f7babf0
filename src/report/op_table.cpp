#include "phalanx/report/op_table.h"

#include <fmt/format.h>

namespace phx {

std::string op_table(const std::vector<OpRecord>& records, int64_t steps, double step_ms,
                     size_t lines) {
  const auto line = [](const std::string& name, const std::string& times, double ms,
                       const std::string& flops, const std::string& bytes, double share) {
    return fmt::format("{:<28} {:>6} {:>9.3f} {:>8} {:>9} {:>6.1f}%\n", name, times, ms, flops,
                       bytes, 100 * share);
  };
  std::string table = fmt::format("{:<28} {:>6} {:>9} {:>8} {:>9} {:>7}\n", "kernel", "times",
                                  "ms/step", "TFLOP/s", "TB/s", "share");
  const std::vector<OpTotal> totals = totals_of(records);
  double all_ms = 0, shown_ms = 0;
  for (size_t i = 0; i < totals.size(); ++i) {
    const OpTotal& op = totals[i];
    const double ms = op.ms / double(steps), seconds = op.ms / 1e3 / double(op.count);  // of one
    all_ms += ms;
    if (i >= lines) continue;
    shown_ms += ms;
    table += line(op.name, fmt::format("{}", op.count / steps), ms,
                  fmt::format("{:.3g}", double(op.cost.flops) / seconds / 1e12),
                  fmt::format("{:.3g}", double(op.cost.bytes) / seconds / 1e12), ms / step_ms);
  }
  if (totals.size() > lines)
    table += line(fmt::format("{} more", totals.size() - lines), "", all_ms - shown_ms, "", "",
                  (all_ms - shown_ms) / step_ms);
  table += line("other", "", step_ms - all_ms, "", "", (step_ms - all_ms) / step_ms);
  table.pop_back();
  return table;
}

}  // namespace phx
