#include "phalanx/train/router_report.h"

#include <algorithm>
#include <numeric>

#include "phalanx/kernels/router.h"

namespace phx {

namespace {

// The names are Megatron's; the order is that of BalanceFactors.
struct LossName {
  const char* type;
  const char* name;
};
constexpr LossName kLosses[] = {{"aux_loss", "load_balancing_loss"},
                                {"seq_aux_loss", "seq_load_balancing_loss"},
                                {"global_aux_loss", "global_load_balancing_loss"}};

double coefficient(const MoeConfig& moe, size_t loss) {
  return loss < 3 ? moe.coefficient(kLosses[loss].type) : moe.moe_z_loss_coeff.value_or(0);
}

RouterReport report_of(const MoeConfig& moe, std::span<const double> row) {
  const auto e = size_t(*moe.num_experts);
  const std::span chosen = row.first(e);
  const double dropped = row[e], calls = std::max(row[e + 2], 1.0);
  const double rows = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  const double mean = std::max(rows / double(e), 1e-300);
  const std::span costs = row.subspan(e + 3 + e, size_t(kernels::kBalanceCosts));
  RouterReport report{.most = std::ranges::max(chosen) / mean,
                      .fewest = std::ranges::min(chosen) / mean,
                      .entropy = costs[4] / calls,
                      .dropped = dropped / std::max(rows + dropped, 1.0)};
  for (const double of_expert : chosen) report.loads.push_back(of_expert / mean);
  // Every rank that shares a micro-batch has counted a call and its whole loss.
  for (size_t loss = 0; loss < 4; ++loss)
    if (const double factor = coefficient(moe, loss); factor != 0)
      report.losses.emplace_back(loss < 3 ? kLosses[loss].name : "z_loss",
                                 costs[loss] / calls / factor);
  return report;
}

}  // namespace

RouterReports router_reports(const TransformerConfig& model, std::span<const double> tally) {
  const MoeConfig& moe = model.moe;
  const auto width = size_t(kernels::RouterTally::width(*moe.num_experts));
  RouterReports reports;
  for (size_t layer = 0; layer < tally.size() / width; ++layer)
    if (model.has_experts(int64_t(layer)))
      reports.layers.emplace_back(layer, report_of(moe, tally.subspan(layer * width, width)));
  if (reports.layers.empty()) return reports;
  RouterReport& all = reports.all = reports.layers.front().second;
  const double share = 1.0 / double(reports.layers.size());
  all.entropy = all.dropped = 0;
  all.loads.clear();
  for (auto& [name, loss] : all.losses) loss = 0;
  for (const auto& [layer, report] : reports.layers) {
    all.most = std::max(all.most, report.most);
    all.fewest = std::min(all.fewest, report.fewest);
    all.entropy += share * report.entropy;
    all.dropped += share * report.dropped;
    for (size_t i = 0; i < all.losses.size(); ++i)
      all.losses[i].second += share * report.losses[i].second;
  }
  return reports;
}

}  // namespace phx
