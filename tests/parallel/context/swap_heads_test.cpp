#include "phalanx/parallel/context/swap_heads.h"

#include <gtest/gtest.h>

#include "parallel/context/on_context_ranks.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using Values = std::vector<double>;

Tensor counting(const Shape& shape, double first, Device device) {
  Values values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + double(i);
  return from_values(values, shape, DType::f64, device);
}

TEST(SwapHeads, ARankGetsItsHeadsOfAllPositionsInOrder) {
  // Two query heads of two channels, two key heads of one. Rows of the sequence: 0 .. 3.
  const std::vector<HeadRun> runs = {{.count = 2, .width = 2}, {.count = 2, .width = 1}};
  on_context_ranks(2, 1, {}, [&](const ContextParallel& cp, Device device) {
    Values own;
    for (const RowSpan& span : cp.cut().spans(4))
      for (int channel = 0; channel < 6; ++channel)
        own.push_back(10.0 * double(span.global) + channel);
    const Tensor x = from_values(own, {2, 1, 6}, DType::f64, device);
    const Tensor y = heads_for_positions(x, runs, *cp.group);  // [4, 1, 3]
    const double q = 2.0 * cp.rank(), k = 4.0 + cp.rank();
    EXPECT_EQ(to_values(y), (Values{q, q + 1, k, 10 + q, 11 + q, 10 + k, 20 + q, 21 + q, 20 + k,
                                    30 + q, 31 + q, 30 + k}));
    EXPECT_EQ(to_values(positions_for_heads(y, runs, *cp.group)), own);
  });
}

TEST(SwapHeads, GradientsTakeTheWayBack) {
  const std::vector<HeadRun> runs = {{.count = 2, .width = 2}};
  on_context_ranks(2, 1, {}, [&](const ContextParallel& cp, Device device) {
    const Tensor x = counting({2, 1, 4}, 0, device);
    Segment segment(std::span(&x, 1), [&](auto in) {
      return std::vector{heads_for_positions(in[0], runs, *cp.group)};
    });
    const Tensor dy = counting({4, 1, 2}, 100.0 * cp.rank(), device);
    const Values expected = to_values(positions_for_heads(dy, runs, *cp.group));
    EXPECT_EQ(to_values(segment.backward(std::span(&dy, 1))[0]), expected);
  });
}

TEST(SwapHeads, HeadsThatRanksCannotShareAreAnError) {
  on_context_ranks(2, 1, {}, [&](const ContextParallel& cp, Device device) {
    const Tensor x = counting({2, 1, 6}, 0, device);
    EXPECT_EQ(error_of([&] { heads_for_positions(x, {{.count = 3, .width = 2}}, *cp.group); }),
              "3 heads cannot be divided among 2 ranks");
  });
}

}  // namespace
}  // namespace phx
