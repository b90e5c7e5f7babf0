#include "phalanx/comm/thread_world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "phalanx/core/runtime.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using testing::error_of;

std::unique_ptr<Communicator> everybody(World& world) {
  std::vector<int> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.group(ranks, "all");
}

// 1 + 2 + 3 by hand, so that the suite does not only agree with itself.
TEST(ThreadWorld, ThreeRanksAddOneTwoAndThree) {
  run_thread_ranks(3, {}, [](World& world) {
    Runtime runtime;
    const auto all = everybody(world);
    const double own[] = {double(world.rank() + 1), -10. * world.rank()};
    const Tensor x = from_values(own, {2}, DType::f32, runtime.device());
    all->all_reduce(x, runtime.stream(StreamName::compute));
    EXPECT_EQ(to_values(x), (std::vector<double>{6, -30}));
  });
}

// In bf16 256 + 1 is 256: rounding after each addition would give 256, rounding once gives 258.
TEST(ThreadWorld, SumsOfBf16RoundOnce) {
  run_thread_ranks(3, {}, [](World& world) {
    Runtime runtime;
    const auto all = everybody(world);
    const double own[] = {world.rank() == 0 ? 256. : 1.};
    const Tensor x = from_values(own, {1}, DType::bf16, runtime.device());
    all->all_reduce(x, runtime.stream(StreamName::compute));
    EXPECT_EQ(to_values(x)[0], 258);
  });
}

TEST(ThreadWorld, AMaximumOverANanIsNan) {
  run_thread_ranks(3, {}, [](World& world) {
    Runtime runtime;
    const auto all = everybody(world);
    const double own[] = {world.rank() == 1 ? NAN : 1.};
    const Tensor x = from_values(own, {1}, DType::f32, runtime.device());
    all->all_reduce(x, runtime.stream(StreamName::compute), ReduceOp::max);
    EXPECT_TRUE(std::isnan(to_values(x)[0]));
  });
}

TEST(ThreadWorld, SixtyFourRanksShareTwoCores) {
  run_thread_ranks(64, {.timeout = 60s}, [](World& world) {
    Runtime runtime;
    const auto all = everybody(world);
    for (int i = 0; i < 20; ++i) {
      const int64_t own[] = {world.rank()};
      const Tensor x = from_ints(own, {1}, DType::i64, runtime.device());
      all->all_reduce(x, runtime.stream(StreamName::compute));
      EXPECT_EQ(to_values(x)[0], 64 * 63 / 2);
    }
  });
}

TEST(ThreadWorld, ARankThatThrowsEndsTheOthers) {
  std::atomic<int> told = 0;
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = error_of([&] {
    run_thread_ranks(4, {}, [&](World& world) {
      Runtime runtime;
      const auto all = everybody(world);
      const auto pair = world.group({world.rank() / 2 * 2, world.rank() / 2 * 2 + 1}, "pair");
      if (world.rank() == 3) throw_error("out of coffee");
      try {
        world.rank() == 2 ? pair->barrier() : all->barrier();
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "rank 3 failed: out of coffee");
        ++told;
        throw;
      }
    });
  });
  EXPECT_EQ(error, "out of coffee");
  EXPECT_EQ(told, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(ThreadWorld, TheFirstExceptionKeepsItsType) {
  EXPECT_THROW(run_thread_ranks(2, {},
                                [](World& world) {
                                  const auto all = everybody(world);
                                  if (world.rank() == 1) throw std::out_of_range("seven");
                                  all->barrier();
                                }),
               std::out_of_range);
}

TEST(ThreadWorld, ATimeOutNamesWhoDidNotEnterWhat) {
  std::atomic<bool> over = false;
  const std::string error = error_of([&] {
    run_thread_ranks(3, {.timeout = 100ms}, [&](World& world) {
      Runtime runtime;
      const auto all = everybody(world);
      const Tensor x = zeros({7}, DType::f32, runtime.device());
      all->barrier();
      if (world.rank() == 1) {
        while (!over) std::this_thread::sleep_for(5ms);  // lost in its work
        return;
      }
      try {
        all->all_reduce(x, runtime.stream(StreamName::compute));
      } catch (const Error&) {
        over = true;
        throw;
      }
    });
  });
  EXPECT_NE(error.find("nothing came for 0.1 s: rank 1 did not enter all_reduce #2 of all (f32, 7 "
                       "elements), called from tests/comm/thread_world_test.cpp:"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("its last call was barrier #1 of all, called from"), std::string::npos)
      << error;
}

TEST(ThreadWorld, AMessageThatIsNeverSentIsNamed) {
  const std::string error = error_of([&] {
    run_thread_ranks(2, {}, [&](World& world) {
      Runtime runtime;
      const auto all = everybody(world);
      const Tensor x = zeros({3}, DType::bf16, runtime.device());
      if (world.rank() == 0) all->receive(x, 1, runtime.stream(StreamName::compute));
    });
  });
  EXPECT_NE(error.find("rank 1 has ended: rank 0 waits in receive #1 of all from rank 1 (bf16, 3 "
                       "elements), called from tests/comm/thread_world_test.cpp:"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("which rank 1 has not sent; it has ended"), std::string::npos) << error;
}

TEST(ThreadWorld, DifferentShapesAreNamed) {
  const std::string error = error_of([&] {
    run_thread_ranks(2, {}, [&](World& world) {
      Runtime runtime;
      const auto all = everybody(world);
      const Tensor x = zeros({3 + world.rank()}, DType::f32, runtime.device());
      all->all_reduce(x, runtime.stream(StreamName::compute));
    });
  });
  EXPECT_NE(error.find("bytes where"), std::string::npos) << error;
  EXPECT_NE(error.find("is in all_reduce #1 of all (f32, "), std::string::npos) << error;
  EXPECT_NE(error.find("all ranks of a group make the same calls with the same shapes"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace phx
