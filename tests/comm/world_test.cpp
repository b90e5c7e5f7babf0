#include "phalanx/comm/world.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "phalanx/comm/mpi_world.h"
#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;
using testing::test_device;
using testing::test_runtime;

// Variables of a launcher, for as long as this lives.
class Launched {
 public:
  explicit Launched(const char* size) {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", size, 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  }
  ~Launched() {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) ::unsetenv(name);
  }
};

TEST(SoloWorld, TalksToNobodyAndChangesNothing) {
  const auto world = make_solo_world();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->description(), "one rank");
  const auto all = world->group({0}, "all");
  const Stream stream = test_runtime().stream(StreamName::compute);
  const Tensor x = from_values(std::vector<double>{3, 4}, {2}, DType::f32, test_device());
  const Tensor full = zeros({2}, DType::f32, test_device());
  all->all_reduce(x, stream);
  all->all_gather(x, full, stream);
  all->barrier();
  EXPECT_EQ(to_values(full), (std::vector<double>{3, 4}));
}

TEST(MakeWorld, WithoutALauncherOrWithOneRankItIsAWorldOfOne) {
  EXPECT_EQ(make_world(DeviceKind::cpu, {})->description(), "one rank");
  const Launched one("1");
  EXPECT_EQ(make_world(DeviceKind::cpu, {})->description(), "one rank");
}

TEST(MakeWorld, RanksOfADeviceThatIsNoneAreRefused) {
  const Launched two("2");
  EXPECT_EQ(error_of([] { make_world(DeviceKind::meta, {}); }), "ranks on meta are not processes");
#ifndef PHX_HAVE_CUDA
  EXPECT_EQ(error_of([] { make_world(DeviceKind::cuda, {}); }),
            "this phalanx was built without CUDA; build the 'cuda' preset, or use --device cpu");
#endif
}

}  // namespace
}  // namespace phx
