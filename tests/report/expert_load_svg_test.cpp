#include "phalanx/report/expert_load_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/report/svg.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 840 - 72 = 768 pixels for iterations 0 to 20; rows of 20 pixels from 60 on.
TEST(ExpertLoadPlot, AnExpertIsARowAndAnIterationAColumn) {
  const std::string svg =
      draw_expert_load({.title = "A <layer>", .loads = {{10, {2, 1}}, {20, {0, 1}}}});
  EXPECT_THAT(svg, HasSubstr("A &lt;layer&gt;"));
  const auto cell = [](const std::string& place, double white, std::string_view colour) {
    return "<path d=\"" + place + "\" fill=\"" + svg::paler(colour, 0.97 * white) + "\"";
  };
  EXPECT_THAT(svg, HasSubstr(cell("M72.0 60.0H456.0v20.0H72.0z", 0.5, svg::kVermilion)));
  EXPECT_THAT(svg, HasSubstr(cell("M456.0 60.0H840.0v20.0H456.0z", 0, svg::kBlue)));
  EXPECT_THAT(svg, HasSubstr(cell("M72.0 80.0H840.0v20.0H72.0z", 1, svg::kVermilion)))
      << "neighbours of one colour are one";
}

TEST(ExpertLoadPlot, AFactorIsAsFarAboveTheMeanAsBelow) {
  const auto svg = [](double load) {
    return draw_expert_load({.title = "t", .loads = {{1, {load}}}});
  };
  EXPECT_EQ(svg(4), svg(100));
  EXPECT_EQ(svg(0.25), svg(0));
  EXPECT_NE(svg(2), svg(4));
  EXPECT_NE(svg(0.5), svg(0.25));
  EXPECT_EQ(svg(1), svg(1.05)) << "colours have steps";
}

TEST(ExpertLoadPlot, ManyIterationsAndExpertsStayASmallPicture) {
  ExpertLoadPlot plot{.title = "t"};
  for (int i = 1; i <= 20000; ++i) {
    plot.loads.emplace_back(i, std::vector<double>());
    for (int e = 0; e < 64; ++e)
      plot.loads.back().second.push_back(0.25 + (i * 31 + e * 7) % 97 / 50.);
  }
  const std::string svg = draw_expert_load(plot);
  EXPECT_LT(svg.size(), 400'000u);
  EXPECT_THAT(svg, HasSubstr("height=\"762\"")) << "rows of 10 pixels";
  EXPECT_THAT(svg, HasSubstr(">20000</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">63</text>"))) << "every fifth has its number";
}

TEST(ExpertLoadPlot, NothingToDrawIsAnError) {
  EXPECT_THAT(error_of([] { draw_expert_load({.title = "t"}); }),
              HasSubstr("the plot \"t\" has no load to draw"));
  EXPECT_THAT(error_of([] {
                draw_expert_load({.title = "t", .loads = {{1, {1, 1}}, {2, {1}}}});
              }),
              HasSubstr("has 1 experts at iteration 2, and 2 before"));
}

}  // namespace
}  // namespace phx
