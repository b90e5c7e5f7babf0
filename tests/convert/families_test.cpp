#include <gtest/gtest.h>

#include <set>

#include "convert/hf_fixtures.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"
#include "phalanx/convert/family.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

size_t tensors_of_layout(RowLayout layout) {
  switch (layout) {
    case RowLayout::qkv:
      return 3;
    case RowLayout::gate_up:
    case RowLayout::experts_gate_up:
      return 2;
    default:
      return 1;
  }
}

TEST(Families, APatternHasAsManyNamesAsItsLayoutHasTensors) {
  for (const Family& family : families()) {
    for (const auto* rows : {&family.tensors, &family.layer_tensors}) {
      std::set<std::string> ours, theirs;
      for (const TensorRow& row : *rows) {
        SCOPED_TRACE(std::string(family.name) + ": " + row.ours);
        const std::vector<std::string> names = expand_names(row.hf);
        EXPECT_EQ(names.size(), tensors_of_layout(row.rows));
        const bool by_expert =
            row.rows == RowLayout::experts || row.rows == RowLayout::experts_gate_up;
        EXPECT_EQ(std::string(row.hf).find('*') != std::string::npos, by_expert);
        EXPECT_TRUE(ours.insert(row.ours).second) << "is there twice";
      }
    }
  }
}

TEST(Families, NamesAndArchitecturesAreThereOnce) {
  std::set<std::string> names, architectures;
  for (const Family& family : families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_TRUE(architectures.insert(family.architecture).second) << family.architecture;
    EXPECT_TRUE(std::string(family.layers).starts_with(family.prefix)) << family.name;
  }
  EXPECT_EQ(names.size(), 14u);
}

// A table names options by texts, which the compiler does not check.
TEST(Families, OptionsAreOptionsOfAModelAndValuesAreJson) {
  TransformerConfig config;
  OptionSet options;
  options.add("Model", config);
  const auto expect_option = [&](const Family& family, const std::string& key) {
    EXPECT_NE(options.find(kebab_case(key)), nullptr) << family.name << ": " << key;
  };
  for (const Family& family : families()) {
    for (const KeyRow& row : family.keys) {
      expect_option(family, row.ours);
      EXPECT_NO_THROW(parse_json(row.absent != nullptr ? row.absent : "null")) << row.hf;
    }
    for (const FixedRow& row : family.fixed) {
      expect_option(family, row.ours);
      EXPECT_NO_THROW(parse_json(row.value)) << row.ours;
    }
    for (const OnlyRow& row : family.only) {
      ASSERT_FALSE(row.values.empty()) << row.hf;
      for (const char* value : row.values) EXPECT_NO_THROW(parse_json(value)) << row.hf;
      // A file without the key is one of those that are taken.
      EXPECT_NE(std::ranges::find(row.values, std::string(row.absent),
                                  [](const char* value) { return std::string(value); }),
                row.values.end())
          << family.name << ": " << row.hf;
    }
  }
}

TEST(Families, StackedExpertsLeadToNamesOfTheTable) {
  for (const Family& family : families()) {
    EXPECT_EQ(family.stacked.empty(), family.experts == ExpertStyle::none) << family.name;
    for (const StackedRow& row : family.stacked) {
      const bool known = std::ranges::any_of(family.layer_tensors, [&](const TensorRow& tensor) {
        return std::string(tensor.hf) == row.hf;
      });
      EXPECT_TRUE(known) << family.name << ": " << row.stacked;
    }
  }
}

}  // namespace
}  // namespace phx
