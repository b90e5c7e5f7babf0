#include "phalanx/report/loss_curve_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Points = std::vector<std::pair<double, double>>;

TEST(RoundTicks, AreRoundAndInside) {
  EXPECT_THAT(round_ticks(0., 10., 5), ElementsAre(0., 2., 4., 6., 8., 10.));
  EXPECT_THAT(round_ticks(1.3, 5.9, 5), ElementsAre(2., 3., 4., 5.));
  EXPECT_THAT(round_ticks(1., 3000., 6), ElementsAre(500., 1000., 1500., 2000., 2500., 3000.));
  EXPECT_THAT(round_ticks(-1., 1., 4), ElementsAre(-1., -0.5, 0., 0.5, 1.));
}

TEST(Smoothed, IsTheMeanOfTheNeighboursTwice) {
  const Points points = {{0, 8.}, {1, 4.}, {2, 0.}, {3, 2.}};
  // Once: 8, (8+4+0)/3 = 4, (4+0+2)/3 = 2, (0+2)/2 = 1. Twice: 8, 14/3, 7/3, 3/2.
  const Points smooth = smoothed(points, 1);
  EXPECT_DOUBLE_EQ(smooth[0].second, 8.);
  EXPECT_DOUBLE_EQ(smooth[1].second, 14. / 3.);
  EXPECT_DOUBLE_EQ(smooth[2].second, 7. / 3.);
  EXPECT_DOUBLE_EQ(smooth[3].second, 1.5);
  EXPECT_EQ(smoothed(points, 0), points);
}

TEST(Smoothed, AStraightLineStaysOneUpToTheLastWindow) {
  Points line;
  for (int i = 0; i < 50; ++i) line.emplace_back(i, 100. - i);
  const Points smooth = smoothed(line, 5);
  for (int i = 0; i < 40; ++i) EXPECT_NEAR(smooth[i].second, line[i].second, 1e-10);  // rounding
}

TEST(LossPlot, HasTitleLegendAndReference) {
  const std::string svg = draw_loss_plot({.title = "A <run> & more",
                                          .curves = {{"small", {{1, 5.}, {2, 4.}}, {{2, 4.5}}}},
                                          .references = {{"unigram entropy", 3.}},
                                          .smoothing = 0.});
  EXPECT_THAT(svg, HasSubstr("A &lt;run&gt; &amp; more"));
  EXPECT_THAT(svg, HasSubstr("small: 4.000"));
  EXPECT_THAT(svg, HasSubstr("small, validation: 4.500"));
  EXPECT_THAT(svg, HasSubstr("unigram entropy (3.000)"));
  EXPECT_THAT(svg, HasSubstr("</svg>\n"));
}

TEST(LossPlot, ACurveRunsFromItsFirstPointToItsLast) {
  const std::string svg =
      draw_loss_plot({.title = "t", .curves = {{"a", {{0, 1.}, {10, 0.}}, {}}}, .smoothing = 0.});
  // The loss axis is [0, 1.05] on 60..478 pixels: 1 lies at 478 - 418 / 1.05 = 79.9.
  EXPECT_THAT(svg, HasSubstr("<path d=\"M72.0 79.9L932.0 478.0\""));
}

TEST(LossPlot, NonFinitePointsAreLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      draw_loss_plot({.title = "t", .curves = {{"a", {{1, 2.}, {2, nan}, {3, 1.}}, {}}}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(error_of([&] {
                draw_loss_plot({.title = "t", .curves = {{"a", {{1, nan}}, {}}}});
              }),
              HasSubstr("no finite point"));
}

TEST(LossPlot, AMillionPointsStayASmallFile) {
  Points points;
  for (int64_t i = 0; i < 1000000; ++i) points.emplace_back(i, 2. + (i * 7919 % 1000) / 1000.);
  EXPECT_LT(draw_loss_plot({.title = "t", .curves = {{"a", points, {}}}}).size(), 100000u);
}

TEST(LossPlot, OnePointIsAPlotToo) {
  EXPECT_THAT(draw_loss_plot({.title = "t", .curves = {{"a", {{1, 2.}}, {}}}}),
              HasSubstr("a: 2.000"));
}

}  // namespace
}  // namespace phx
