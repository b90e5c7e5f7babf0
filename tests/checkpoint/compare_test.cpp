#include "phalanx/checkpoint/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/memory_source.h"

namespace phx {
namespace {

TensorsInMemory tensor(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  TensorsInMemory source;
  source.set("w", {DType::f32, {int64_t(values.size())}}, bytes);
  return source;
}

TEST(Differences, OfEqualBitsAreNone) {
  EXPECT_TRUE(differences(tensor({1, NAN, INFINITY}), tensor({1, NAN, INFINITY})).empty());
}

TEST(Differences, AreCountedAndTheLargestIsTold) {
  const auto found = differences(tensor({1, 2, 3}), tensor({1, 2.5, 2}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "2 of 3 elements");
  EXPECT_EQ(found[0].largest, 1);
}

TEST(Differences, ToANanAreInfiniteWhateverComesAfterIt) {
  const auto found = differences(tensor({1, NAN, 3}), tensor({1, 2, 2}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "2 of 3 elements");
  EXPECT_EQ(found[0].largest, INFINITY);
}

}  // namespace
}  // namespace phx
