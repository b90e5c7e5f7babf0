// The sanitizer builds do stop at the mistakes they are for: a preset that lost its flags would
// pass every test.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <thread>

namespace phx {
namespace {

#if defined(__SANITIZE_ADDRESS__)  // the preset asan, which has the undefined-behaviour sanitizer
                                   // too
TEST(Sanitizers, StopAtAReadBehindTheEndOfAnArray) {
  const auto numbers = std::make_unique<volatile int[]>(4);
  volatile int at = 4;
  EXPECT_DEATH(std::exit(numbers[at]), "heap-buffer-overflow");
}

TEST(Sanitizers, StopAtAnOverflowOfASignedNumber) {
  volatile int number = std::numeric_limits<int>::max();
  EXPECT_DEATH(
      {
        number = number + 1;
        std::exit(0);
      },
      "signed integer overflow");
}

TEST(Sanitizers, TellLostMemoryWhenTheProgramEnds) {
  EXPECT_DEATH(
      {
        char* volatile lost = new char[4096];
        lost = nullptr;
        std::exit(0);
      },
      "detected memory leaks");
}
#elif defined(__SANITIZE_THREAD__)
TEST(Sanitizers, TellThatTwoThreadsWriteTheSameNumber) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        int number = 0;
        std::thread other([&] { ++number; });
        ++number;
        other.join();
        std::exit(0);
      },
      "data race");
}
#else
TEST(Sanitizers, AreInThePresetsAsanAndTsan) { GTEST_SKIP() << "scripts/build.sh asan base_test"; }
#endif

}  // namespace
}  // namespace phx
