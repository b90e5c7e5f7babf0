#include "phalanx/report/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "phalanx/base/error.h"

namespace phx {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(SvgPicture, IsOneElementWithAWhiteGround) {
  const std::string svg = SvgPicture(320, 200.5).finish();
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"320\" "
                              "height=\"200.5\" viewBox=\"0 0 320 200.5\""));
  EXPECT_THAT(svg, EndsWith("<rect width=\"320\" height=\"200.5\" fill=\"#ffffff\"/>\n</svg>\n"));
}

TEST(SvgPicture, WritesElementsWithTheirAttributesInOrder) {
  SvgPicture picture(10, 10);
  picture.line(1, 2, 3.25, 4, {{"stroke", svg::kBlue}});
  picture.rect(0, 1, 2, 3, {{"rx", "2"}, {"fill", "url(#bubble)"}});
  picture.circle(5, 5, 3.6, {{"fill", svg::kWhite}});
  picture.path("M0 0L1 1", {{"fill", "none"}});
  picture.define("<pattern id=\"bubble\"/>");
  EXPECT_THAT(std::move(picture).finish(),
              HasSubstr("<line x1=\"1\" y1=\"2\" x2=\"3.3\" y2=\"4\" stroke=\"#0072b2\"/>\n"
                        "<rect x=\"0\" y=\"1\" width=\"2\" height=\"3\" rx=\"2\" "
                        "fill=\"url(#bubble)\"/>\n"
                        "<circle cx=\"5\" cy=\"5\" r=\"3.6\" fill=\"#ffffff\"/>\n"
                        "<path d=\"M0 0L1 1\" fill=\"none\"/>\n"
                        "<defs><pattern id=\"bubble\"/></defs>\n"));
}

TEST(SvgPicture, EscapesTextsAndTips) {
  SvgPicture picture(10, 10);
  picture.text(1, 2, "a < b & \"c\"", {{"text-anchor", "end"}});
  picture.rect(0, 0, 1, 1, {}, "x > y");
  EXPECT_THAT(std::move(picture).finish(),
              HasSubstr("<text x=\"1\" y=\"2\" text-anchor=\"end\">a &lt; b &amp; &quot;c&quot;"
                        "</text>\n<rect x=\"0\" y=\"0\" width=\"1\" height=\"1\">"
                        "<title>x &gt; y</title></rect>\n"));
}

TEST(SvgPicture, APlaceThatIsNoNumberIsAnError) {
  SvgPicture picture(10, 10);
  EXPECT_THROW(picture.text(std::numeric_limits<double>::quiet_NaN(), 0, "lost"), Error);
}

TEST(SvgPicture, RoundsToTenthsAndHasNoMinusZero) {
  SvgPicture picture(10, 10);
  picture.text(-0.01, 1.04, "t");
  EXPECT_THAT(std::move(picture).finish(), HasSubstr("<text x=\"0\" y=\"1\">t</text>"));
}

TEST(SvgColours, GetPalerTowardsWhite) {
  EXPECT_EQ(svg::paler("#0072b2", 0), "#0072b2");
  EXPECT_EQ(svg::paler("#0072b2", 1), "#ffffff");
  EXPECT_EQ(svg::paler("#000000", 0.5), "#7f7f7f");
}

}  // namespace
}  // namespace phx
