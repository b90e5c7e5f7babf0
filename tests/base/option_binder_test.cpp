#include "phalanx/base/option_binder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/things_config.h"
#include "phalanx/base/error.h"

namespace phx {
namespace {

// What a value of a number with this rule is told; empty if it is taken.
template <class Trait>
std::string refusal(const Trait& trait, const std::string& text) {
  double member = 0;
  Option bound;
  FieldBinder field([&](Option option) { bound = std::move(option); }, "Numbers");
  field("x", member, "a number", trait);
  try {
    bound.assign(std::vector<std::string>{text});
  } catch (const Error& error) {
    EXPECT_EQ(member, 0) << "a value that was refused was stored";
    return error.what();
  }
  EXPECT_EQ(member, std::stod(text));
  return "";
}

TEST(OptionBinder, RangesIncludeTheEndsThatTheyName) {
  EXPECT_EQ(refusal(Positive{}, "0"), "should be positive");
  EXPECT_EQ(refusal(Positive{}, "1e-300"), "");
  EXPECT_EQ(refusal(NotNegative{}, "0"), "");
  EXPECT_EQ(refusal(NotNegative{}, "-1e-300"), "should be 0 or more");
  EXPECT_EQ(refusal(AtLeast{2}, "2"), "");
  EXPECT_EQ(refusal(AtLeast{2}, "1.999"), "should be 2 or more");
  EXPECT_EQ(refusal(InRange{0.5, 3}, "3"), "");
  EXPECT_EQ(refusal(InRange{0.5, 3}, "3.001"), "should be between 0.5 and 3");
  EXPECT_EQ(refusal(FractionBelowOne{}, "0"), "");
  EXPECT_EQ(refusal(FractionBelowOne{}, "1"), "should be at least 0 and below 1");
}

TEST(OptionBinder, AListIsTakenWholeOrNotAtAll) {
  std::vector<int64_t> sizes = {7};
  Option bound;
  FieldBinder field([&](Option option) { bound = std::move(option); }, "Numbers");
  field("sizes", sizes, "several", Positive{});
  EXPECT_EQ(bound.kind, Option::Kind::list);
  EXPECT_THROW(bound.assign(std::vector<std::string>{"1", "2", "-3"}), Error);
  EXPECT_EQ(sizes, std::vector<int64_t>{7});
  bound.assign(std::vector<std::string>{"1", "2"});
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(bound.get(), (nlohmann::json{1, 2}));
}

TEST(OptionBinder, TraitsBecomeTheFieldsOfAnOption) {
  ThingsConfig config;
  std::vector<Option> bound;
  config.each(FieldBinder([&](Option option) { bound.push_back(std::move(option)); }, "Things"));
  ASSERT_EQ(bound.size(), 11u);

  const Option& width = bound[0];
  EXPECT_EQ(width.name, "width");
  EXPECT_EQ(width.group, "Things");
  EXPECT_EQ(width.help, "how wide");
  EXPECT_EQ(width.type, "int");
  EXPECT_TRUE(width.required);
  EXPECT_EQ(width.aliases, Texts{"breadth"});

  const Option& add_bias = bound[4];
  EXPECT_EQ(add_bias.kind, Option::Kind::toggle);
  EXPECT_TRUE(add_bias.starts_true);
  ASSERT_EQ(add_bias.switches.size(), 1u);
  EXPECT_EQ(add_bias.switches[0].flag, "disable-bias");
  EXPECT_EQ(add_bias.switches[0].value, "false");
  EXPECT_EQ(add_bias.flag(), "--disable-bias");

  const Option& shape = bound[6];
  EXPECT_EQ(shape.choices, (Texts{"round", "square"}));
  EXPECT_EQ(shape.switches[0].value, "square");
  EXPECT_EQ(shape.refused[0].first, "spiral");

  const Option& limit = bound[7];
  EXPECT_TRUE(limit.own);
  EXPECT_EQ(limit.default_text, "no limit");
  EXPECT_EQ(limit.get(), nullptr);
}

}  // namespace
}  // namespace phx
