#include "phalanx/base/json.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

std::string strict_error(const std::string& text, int depth = 2) {
  try {
    parse_strict_json(text, depth);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, TextAndValueGoRoundTheSame) {
  const nlohmann::json value = parse_json(R"({"b": [1, -2.5, "x"], "a": null})");
  EXPECT_EQ(json_text(value), R"({"a":null,"b":[1,-2.5,"x"]})");
  EXPECT_EQ(parse_json(json_text(value, 2)), value);
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"b", 1}, {"a", 2}}), R"({"b":1,"a":2})");
}

TEST(Json, WhatIsNoJsonThrowsOrIsDiscarded) {
  EXPECT_THROW(parse_json("{"), nlohmann::json::exception);
  EXPECT_TRUE(try_parse_json("{").is_discarded());
  EXPECT_FALSE(try_parse_json("{}").is_discarded());
}

TEST(Json, StrictReadingRefusesTheSameKeyTwiceInOneObject) {
  EXPECT_EQ(strict_error(R"({"a": 1, "b": {"a": 2}, "c": {"a": 3}})"), "");
  EXPECT_EQ(strict_error(R"({"a": 1, "b": {"c": 2, "c": 3}})"), "has \"c\" twice");
}

TEST(Json, StrictReadingRefusesDepthBeforeItTakesTheStack) {
  EXPECT_EQ(strict_error(R"({"a": [1]})"), "");
  EXPECT_EQ(strict_error(R"({"a": [[[1]]]})"), "is nested deeper than 2 levels");
  EXPECT_EQ(strict_error(std::string(1000000, '[')), "is nested deeper than 2 levels");
}

TEST(Json, StrictReadingSaysWhereTextIsNoJson) {
  EXPECT_NE(strict_error("{\"a\" 1}").find("is not valid JSON: "), std::string::npos);
}

}  // namespace
}  // namespace phx
