#include "phalanx/data/preprocess/json_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/data/preprocess/text_input.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;

// The texts of a line, with the memory behind it that a block has.
std::vector<std::string> parsed(std::string line, const std::vector<std::string>& keys) {
  static JsonLineParser parser;  // one for all: it is used again and again
  const size_t size = line.size();
  line.resize(size + LineBlock::kPadding);
  const auto texts = parser.parse(std::string_view(line).substr(0, size), keys);
  return {texts.begin(), texts.end()};
}

std::string refused(const std::string& line) {
  return error_of([&] { parsed(line, {"text"}); });
}

TEST(JsonLine, TextsComeInTheOrderOfTheKeys) {
  EXPECT_THAT(parsed(R"({"a": "1", "b": "2", "c": 3})", {"b", "a"}), ElementsAre("2", "1"));
  EXPECT_THAT(parsed(R"({"a": "1"})", {"a", "a"}), ElementsAre("1", "1"));
}

TEST(JsonLine, EscapesAreResolved) {
  EXPECT_THAT(parsed(R"({"a": "\u0041\n\ud83d\ude00\"\\"})", {"a"}),
              ElementsAre("A\n\U0001F600\"\\"));
  EXPECT_THAT(parsed(R"({"\u0061": "x"})", {"a"}), ElementsAre("x")) << "in keys as well";
}

TEST(JsonLine, OfAKeyThatComesTwiceTheLastCounts) {
  EXPECT_THAT(parsed(R"({"a": "1", "a": "2"})", {"a"}), ElementsAre("2"));
}

TEST(JsonLine, KeysOfObjectsInsideAreNotMeant) {
  EXPECT_EQ(refused(R"({"meta": {"text": "x"}})"),
            "there is no \"text\"\n  hint: --json-keys names the keys to take");
}

TEST(JsonLine, EveryKindThatIsNoTextIsNamed) {
  EXPECT_EQ(refused(R"({"text": null})"), "\"text\" should be a string, but it is null");
  EXPECT_EQ(refused(R"({"text": true})"), "\"text\" should be a string, but it is true or false");
  EXPECT_EQ(refused(R"({"text": 1.5})"), "\"text\" should be a string, but it is a number");
  EXPECT_EQ(refused(R"({"text": {}})"), "\"text\" should be a string, but it is an object");
  EXPECT_EQ(refused(R"("text")"), "a line should be a JSON object, but this is a string");
}

TEST(JsonLine, ALineIsCheckedAsAWhole) {
  for (const char* line : {R"({"text": "a"} x)", R"({"text": "a", "b": tru})", R"({"text": "a)",
                           "{\"text\": \"\xFF\"}", ""})
    EXPECT_TRUE(refused(line).starts_with("this is no JSON: ")) << line;
}

}  // namespace
}  // namespace phx
