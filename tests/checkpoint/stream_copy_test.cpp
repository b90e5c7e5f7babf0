#include "phalanx/checkpoint/stream_copy.h"

#include <gtest/gtest.h>

#include <vector>

namespace phx {
namespace {

TEST(StreamCopy, CopiesWhatItIsToldAndNothingElseFromAnywhereToAnywhere) {
  std::vector<unsigned char> from(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
  for (const size_t begin : {0, 1, 13, 64, 100}) {
    for (const size_t to : {0, 1, 31, 32, 63, 64, 65}) {
      for (const size_t count : {0, 1, 31, 63, 64, 65, 127, 128, 300, 700}) {
        std::vector<unsigned char> out(1000, 0xee), truth = out;
        std::copy_n(from.begin() + long(begin), count, truth.begin() + long(to));
        stream_copy(out.data() + to, from.data() + begin, int64_t(count));
        ASSERT_EQ(out, truth) << begin << " " << to << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace phx
