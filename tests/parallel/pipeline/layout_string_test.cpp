#include "phalanx/parallel/pipeline/layout_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using testing::error_of;

TEST(LayoutString, RepeatsTokensAndGroups) {
  EXPECT_THAT(parse_layout("Et*3|(tt|)*2,m|L"), ElementsAre("Ettt", "tt", "tt", "m", "L"));
  EXPECT_THAT(parse_layout("E||((t|)*2 t)*2 | L"),
              ElementsAre("E", "", "t", "t", "tt", "t", "t", "L"));
}

TEST(LayoutString, StagesMayBeEmptyAndSeparatorsMeanNothing) {
  EXPECT_THAT(parse_layout(""), ElementsAre(""));
  EXPECT_THAT(parse_layout("|"), ElementsAre("", ""));
  EXPECT_THAT(parse_layout(" E , t * 2,|, L "), ElementsAre("Ett", "L"));
  EXPECT_THAT(parse_layout("|*3"), ElementsAre("", "", "", "")) << "a border may be repeated";
}

TEST(LayoutString, ALayoutThatWouldFillTheMemoryIsRefused) {
  EXPECT_EQ(parse_layout("t*1000000").at(0).size(), 1'000'000u);
  EXPECT_THAT(error_of([] { parse_layout("((t*1000)*1000)*1000"); }),
              ::testing::HasSubstr("the layout becomes too long"));
  EXPECT_THAT(error_of([] { parse_layout("t*0"); }),
              ::testing::HasSubstr("1 or more, should stand after '*'"));
}

TEST(LayoutString, NamesThePlaceThatItCannotRead) {
  EXPECT_EQ(error_of([] { parse_layout("Et|x|L"); }),
            "--pipeline-model-parallel-layout \"Et|x|L\", at 'x' (character 4): a stage is made of "
            "E, t, m and L, with | between stages, (..) for groups and *n for repeats");
  EXPECT_EQ(error_of([] { parse_layout("E(t|L"); }),
            "--pipeline-model-parallel-layout \"E(t|L\", at '(' (character 2): this '(' is never "
            "closed");
  EXPECT_EQ(error_of([] { parse_layout("Et)*2|L"); }),
            "--pipeline-model-parallel-layout \"Et)*2|L\", at ')' (character 3): this ')' closes "
            "nothing");
  EXPECT_EQ(error_of([] { parse_layout("Et*|L"); }),
            "--pipeline-model-parallel-layout \"Et*|L\", at '|' (character 4): a number of "
            "repeats, 1 or more, should stand after '*'");
  EXPECT_EQ(error_of([] { parse_layout("Et*99999999999"); }),
            "--pipeline-model-parallel-layout \"Et*99999999999\", at its end: the layout becomes "
            "too long");
}

}  // namespace
}  // namespace phx
