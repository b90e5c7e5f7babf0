// From what routers count in a step (kernels/router.h) to what people read.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "phalanx/report/iteration_report.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct RouterReports {
  RouterReport all;  // losses and entropy are means over the layers with experts
  std::vector<std::pair<int64_t, RouterReport>> layers;
};

// tally: [layers, RouterTally::width] of all ranks; layers of multi-token prediction are the last.
RouterReports router_reports(const TransformerConfig& model, std::span<const double> tally);

}  // namespace phx
