#include "phalanx/train/router_report.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TransformerConfig two_experts() {
  TransformerConfig model;
  model.num_layers = 3;
  MoeConfig& moe = model.moe;
  moe.num_experts = 2;
  moe.moe_layer_freq = FrequencyPattern::every_nth(2);
  moe.moe_router_load_balancing_type = {"aux_loss", "global_aux_loss"};
  moe.moe_aux_loss_coeff = {0.5, 0.25};
  moe.moe_z_loss_coeff = 0.1;
  return model;
}

TEST(RouterReport, LoadsAreMultiplesOfTheMeanAndLossesAreMeansWithoutCoefficients) {
  // chosen [2], dropped, tokens, calls, scored [2], then costs: batch, sample, past, z, entropy.
  const std::vector<double> tally = {
      30, 10, 8, 24, 4, 30, 10, 2.0, 0, 3.0, 0.4, 1.2,  // layer 0
      0,  0,  0, 0,  0, 0,  0,  0,   0, 0,   0,   0,    // layer 1 has no experts
      18, 22, 0, 20, 4, 18, 22, 4.0, 0, 1.0, 0.8, 2.0,  // layer 2
  };
  const RouterReports reports = router_reports(two_experts(), tally);
  ASSERT_EQ(reports.layers.size(), 2u);
  const auto& [layer, first] = reports.layers[0];
  EXPECT_EQ(layer, 0);
  EXPECT_DOUBLE_EQ(first.most, 1.5);
  EXPECT_DOUBLE_EQ(first.fewest, 0.5);
  EXPECT_DOUBLE_EQ(first.entropy, 0.3);
  EXPECT_DOUBLE_EQ(first.dropped, 8.0 / 48);
  const NamedLosses losses = {{"load_balancing_loss", 2.0 / 4 / 0.5},
                              {"global_load_balancing_loss", 3.0 / 4 / 0.25},
                              {"z_loss", 0.4 / 4 / 0.1}};
  EXPECT_EQ(first.losses, losses);
  EXPECT_EQ(first.loads, (std::vector<double>{1.5, 0.5}));
  EXPECT_EQ(reports.layers[1].first, 2);
  EXPECT_DOUBLE_EQ(reports.layers[1].second.most, 1.1);

  EXPECT_DOUBLE_EQ(reports.all.most, 1.5) << "of the worst layer";
  EXPECT_DOUBLE_EQ(reports.all.fewest, 0.5);
  EXPECT_TRUE(reports.all.loads.empty()) << "an expert is one of a layer";
  EXPECT_DOUBLE_EQ(reports.all.entropy, (0.3 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(reports.all.dropped, 4.0 / 48);
  EXPECT_DOUBLE_EQ(reports.all.losses[0].second, (1.0 + 2.0) / 2);
}

}  // namespace
}  // namespace phx
