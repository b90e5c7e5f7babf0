#include "phalanx/data/batch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr BatchOrder::Options kCyclic{.type = DataloaderType::cyclic};

TEST(BatchOrder, CyclicGoesOnOnlyWhereItsStepsMeet) {
  const BatchOrder order(kCyclic, {.micro_batch = 3, .data_ranks = 2}, /*num_samples=*/40);
  EXPECT_GE(order.at(/*consumed=*/12, /*j=*/0), 0);
  EXPECT_THAT(error_of([&] { order.at(/*consumed=*/16, /*j=*/0); }),
              AllOf(HasSubstr("16 consumed samples are no multiple of --micro-batch-size 3 x data "
                              "parallel 2 = 6"),
                    HasSubstr("hint: go on with the --micro-batch-size and the number of ranks of "
                              "the run that was saved, or with others whose product divides 16")));
}

TEST(BatchOrder, SingleGoesOnAnywhere) {
  const BatchOrder order({}, {.micro_batch = 3, .data_ranks = 2, .data_rank = 1}, 40);
  EXPECT_EQ(order.at(/*consumed=*/16, /*j=*/2), 16 + 3 + 2);
}

}  // namespace
}  // namespace phx
