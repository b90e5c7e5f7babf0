#include "phalanx/models/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

// Two tokens whose logits are their hidden states: w is the identity.
LossCall two_tokens() {
  const int64_t labels[] = {0, 1};
  return {.hidden = from_values(Values{2, 0, 1, 3}, {2, 2}, DType::f64, test_device()),  // [t, h]
          .weight = from_values(Values{1, 0, 0, 1}, {2, 2}, DType::f64, test_device()),  // [v, h]
          .labels = from_ints(labels, {2}, DType::i64, test_device()),                   // [t]
          .loss_mask = {},
          .grad_scale = {}};
}

double sum(const LossCall& call) { return to_values(cross_entropy().sum(call, {}))[0]; }

TEST(CrossEntropy, IsTheSumOverTheTokensThatCount) {
  const double first = std::log(std::exp(2.) + 1) - 2,
               second = std::log(std::exp(1.) + std::exp(3.)) - 3;
  LossCall call = two_tokens();
  EXPECT_NEAR(sum(call), first + second, 1e-14);
  call.loss_mask = from_values(Values{0, 1}, {2}, DType::f64, test_device());
  EXPECT_NEAR(sum(call), second, 1e-14);
  call.loss_mask = {};
  const int64_t labels[] = {0, -100};
  call.labels = from_ints(labels, {2}, DType::i64, test_device());
  EXPECT_NEAR(sum(call), first, 1e-14) << "-100 does not count";
}

TEST(CrossEntropy, IsTheLossOfTheCatalogue) {
  ASSERT_EQ(standard_losses().size(), 1u);
  EXPECT_EQ(standard_losses()[0].name, "cross-entropy");
  EXPECT_TRUE(standard_losses()[0].options.empty());
}

}  // namespace
}  // namespace phx
