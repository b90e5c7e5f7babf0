#include "phalanx/base/option_values.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/things_config.h"

namespace phx {
namespace {

std::string told(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OptionValues, IntegersAreDecimalAndFitIn64Bits) {
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("+12"), 12);
  EXPECT_EQ(parse_integer("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  for (const char* text : {"", "+", "+-3", "1.0", "1e3", "0x10", "12 ", " 12", "1_000"}) {
    EXPECT_EQ(told([&] { parse_integer(text); }), "is not an integer") << text;
  }
  EXPECT_EQ(told([] { parse_integer("9223372036854775808"); }),
            "is too large for an integer of 64 bits");
}

TEST(OptionValues, NumbersAreFinite) {
  EXPECT_EQ(parse_number("+.5"), 0.5);
  EXPECT_EQ(parse_number("-1E-3"), -1e-3);
  for (const char* text : {"", "nan", "inf", "-inf", "1.0x", "one"}) {
    EXPECT_EQ(told([&] { parse_number(text); }), "is not a number") << text;
  }
  EXPECT_EQ(told([] { parse_number("1e400"); }), "does not fit a number of 64 bits");
}

TEST(OptionValues, BoolsHaveFiveSpellingsEach) {
  for (const char* text : {"true", "True", "1", "yes", "on"}) EXPECT_TRUE(parse_bool(text));
  for (const char* text : {"false", "False", "0", "no", "off"}) EXPECT_FALSE(parse_bool(text));
  for (const char* text : {"", "TRUE", "2", "y"}) {
    EXPECT_EQ(told([&] { parse_bool(text); }), "is neither true nor false") << text;
  }
}

TEST(OptionValues, AnEnumIsReadAndWrittenByItsNames) {
  EXPECT_EQ(OptionValue<Form>::parse("square"), Form::square);
  nlohmann::json out;
  OptionValue<Form>::write(out, Form::square);
  EXPECT_EQ(out, "square");
  EXPECT_EQ(told([] { OptionValue<Form>::parse("flat"); }), "\"flat\" is no choice");
}

TEST(OptionValues, JsonKeepsTheTypeOfWhatIsWritten) {
  nlohmann::json list;
  write_list(list);
  EXPECT_EQ(list.dump(), "[]");
  write_json(next_item(list), true);
  write_json(next_item(list), int64_t{1} << 60);
  write_json(next_item(list), 2.0);
  write_json(next_item(list), std::string("x"));
  write_null(next_item(list));
  EXPECT_EQ(list.dump(), "[true,1152921504606846976,2.0,\"x\",null]");
}

}  // namespace
}  // namespace phx
