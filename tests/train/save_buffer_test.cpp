#include "phalanx/train/save_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phx {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(SaveBuffer, HoldsTheWholeStateWhereAQuarterOfTheMemoryIsLeft) {
  EXPECT_EQ(save_buffer(75 * kGiB, 120 * kGiB, 1, ComputesOn::device).bytes, 75 * kGiB);
  EXPECT_TRUE(save_buffer(75 * kGiB, 100 * kGiB, 1, ComputesOn::device).holds_all());
  EXPECT_THAT(save_buffer(kGiB, 100 * kGiB, 1, ComputesOn::device).text(),
              HasSubstr("hold all of a rank's state"));
}

TEST(SaveBuffer, IsThreeQuartersOfTheMemoryElse) {
  const SaveBuffer buffer = save_buffer(75 * kGiB, 40 * kGiB, 1, ComputesOn::device);
  EXPECT_EQ(buffer.bytes, 30 * kGiB);
  EXPECT_FALSE(buffer.holds_all());
  // 45 GiB at 2 GB/s
  EXPECT_THAT(buffer.text(), HasSubstr("the rest waits for the disk, at 2 GB/s 24"));
}

TEST(SaveBuffer, LeavesMostOfTheMemoryToRanksThatComputeOnTheHost) {
  EXPECT_EQ(save_buffer(75 * kGiB, 40 * kGiB, 2, ComputesOn::host).bytes, 5 * kGiB);
}

TEST(SaveBuffer, IsSharedByTheRanksOfAMachine) {
  EXPECT_EQ(save_buffer(75 * kGiB, 160 * kGiB, 8, ComputesOn::device).bytes, 15 * kGiB);
  EXPECT_EQ(save_buffer(75 * kGiB, 0, 8, ComputesOn::device).bytes,
            16 << 20);  // two slots at least
}

}  // namespace
}  // namespace phx
