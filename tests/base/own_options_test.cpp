#include "phalanx/base/own_options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/named_entry.h"

namespace phx {
namespace {

struct Numbers {
  double strength = 0.5;
  int64_t count = 3;

  template <class Field>
  void each(Field&& field) {
    field("my-strength", strength, "how strong", InRange{0, 1});
    field("my-count", count, "how many", Positive{});
  }
};
struct Others {};

TEST(OwnOptions, AreFilledByFlagsAndWrittenAsJson) {
  OwnOptions own = OwnOptions::of<Numbers>();
  OptionSet set;
  own.add_to(set, "Mine");
  const std::vector<std::string> args = {"--my-strength", "0.25"};
  EXPECT_TRUE(set.parse(args).ok());
  EXPECT_EQ(own.get<Numbers>().strength, 0.25);
  EXPECT_EQ(own.get<Numbers>().count, 3);
  EXPECT_EQ(set.json(), (nlohmann::json{{"my_strength", 0.25}, {"my_count", 3}}));
  EXPECT_NE(set.help("x", "").find("--my-count"), std::string::npos);
}

TEST(OwnOptions, RulesOnValuesHold) {
  OwnOptions own = OwnOptions::of<Numbers>();
  OptionSet set;
  own.add_to(set, "Mine");
  const std::vector<std::string> args = {"--my-strength", "2"};
  const ParseReport report = set.parse(args);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].text, "--my-strength 2 should be between 0 and 1");
}

TEST(OwnOptions, ACopyHasItsOwnNumbers) {
  const OwnOptions first = OwnOptions::of<Numbers>({.strength = 0.1});
  OwnOptions second = first;
  OptionSet set;
  second.add_to(set, "Mine");
  const std::vector<std::string> args = {"--my-strength", "0.9"};
  set.parse(args);
  EXPECT_EQ(first.get<Numbers>().strength, 0.1);
  EXPECT_EQ(second.get<Numbers>().strength, 0.9);
}

TEST(OwnOptions, AskingForOptionsThatWereNotDeclaredIsAnError) {
  EXPECT_THROW(OwnOptions().get<Numbers>(), Error);
  EXPECT_THROW(OwnOptions::of<Numbers>().get<Others>(), Error);
  EXPECT_TRUE(OwnOptions().empty());
}

struct Entry {
  std::string name;
};

TEST(NamedEntry, AMissingNameIsAnErrorThatListsTheOthers) {
  const std::vector<Entry> entries = {{"one"}, {"two"}};
  EXPECT_EQ(&entry_of(entries, "two", "--number"), &entries[1]);
  EXPECT_EQ(find_entry(entries, "three"), nullptr);
  EXPECT_EQ(entry_names(entries), (std::vector<std::string>{"one", "two"}));
  try {
    entry_of(entries, "three", "--number");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "--number three is not in the catalogue of this program, which has: one, two");
  }
}

}  // namespace
}  // namespace phx
