#include "phalanx/base/frequency_pattern.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

using Entries = std::vector<int64_t>;

std::string problem_of(const std::string& text) {
  try {
    FrequencyPattern::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FrequencyPattern, ANumberMeansEveryNth) {
  const FrequencyPattern pattern = FrequencyPattern::parse(" 6 ");
  EXPECT_EQ(pattern.every, 6);
  EXPECT_FALSE(pattern.is_list());
  EXPECT_EQ(FrequencyPattern::parse("2*3").every, 6);
}

TEST(FrequencyPattern, ListsAreAddedAndRepeatedAsInPython) {
  EXPECT_EQ(FrequencyPattern::parse("([0]*3+[1]*1)*3").list,
            (Entries{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(FrequencyPattern::parse("2*[0, 1,]").list, (Entries{0, 1, 0, 1}));
  EXPECT_EQ(FrequencyPattern::parse("[1]+[0]*2").list, (Entries{1, 0, 0}));
  EXPECT_EQ(FrequencyPattern::parse("[1]*(1+2)").list, (Entries{1, 1, 1}));
  EXPECT_EQ(FrequencyPattern::parse("[1]*0+[0]").list, (Entries{0}));
}

TEST(FrequencyPattern, TextIsKeptAndAListCanBeWritten) {
  EXPECT_EQ(FrequencyPattern::parse("[0]*2").text(), "[0]*2");
  EXPECT_EQ(FrequencyPattern::of({1, 0}).text(), "[1,0]");
  EXPECT_EQ(FrequencyPattern::of({0, 0}), FrequencyPattern::parse("[0]*2"));
}

TEST(FrequencyPattern, AnythingElseIsRefusedWithThePlace) {
  EXPECT_EQ(problem_of("[0"), "is not a pattern: expected ',' or ']' at character 3");
  EXPECT_EQ(problem_of("[0]*[1]"),
            "is not a pattern: expected a number on one side of * at character 8");
  EXPECT_EQ(
      problem_of("[0]+1"),
      "is not a pattern: expected a list on both sides of +, or a number on both at character 6");
  EXPECT_EQ(problem_of("exit()"), "is not a pattern: expected a number, '[' or '(' at character 1");
  EXPECT_EQ(problem_of("[1]]"), "is not a pattern: expected nothing more at character 4");
  EXPECT_EQ(problem_of("0"), "is not a pattern: every N-th layer needs N >= 1");
  EXPECT_EQ(problem_of(""), "is not a pattern: expected a number, '[' or '(' at character 1");
}

TEST(FrequencyPattern, SizeAndDepthAreBounded) {
  EXPECT_NE(problem_of("[1]*999999*999999"), "");
  EXPECT_NE(problem_of(std::string(5000, '(') + "1"), "");
  EXPECT_NE(problem_of("1000000*1000000"), "");
}

}  // namespace
}  // namespace phx
