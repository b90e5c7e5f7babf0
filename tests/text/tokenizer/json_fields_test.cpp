#include "phalanx/text/tokenizer/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace phx {
namespace {

const nlohmann::json kJson = {{"type", "Split"},   {"text", "a"},    {"flag", true},
                              {"number", 3},       {"list", {1, 2}}, {"map", {{"k", 1}}},
                              {"nothing", nullptr}};

TEST(JsonFields, GiveValuesOrTheDefault) {
  const JsonFields fields(kJson, "decoder");
  EXPECT_EQ(fields.type(), "Split");
  EXPECT_EQ(fields.text("text"), "a");
  EXPECT_EQ(fields.text("other", "b"), "b");
  EXPECT_TRUE(fields.flag("flag", false));
  EXPECT_TRUE(fields.flag("other", true));
  EXPECT_EQ(fields.number("number", 5), 3);
  EXPECT_EQ(fields.number("other", 5), 5);
  EXPECT_EQ(fields.array("list").size(), 2u);
  EXPECT_EQ(fields.object("map").size(), 1u);
  EXPECT_TRUE(fields.is_null("nothing") && fields.is_null("other") && !fields.is_null("text"));
}

TEST(JsonFields, ErrorsNameThePart) {
  const JsonFields fields(kJson, "decoder");
  EXPECT_NE(error_of([&] { fields.at("other"); }).find("decoder"), std::string::npos);
  EXPECT_NE(error_of([&] { fields.text("number"); }).find("number"), std::string::npos);
  EXPECT_NE(error_of([&] { fields.array("map"); }).find("map"), std::string::npos);
  EXPECT_NE(error_of([&] { fields.refuse_type(); }).find("decoder Split is not supported"),
            std::string::npos);
}

}  // namespace
}  // namespace phx
