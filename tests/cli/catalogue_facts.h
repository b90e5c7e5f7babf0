// What is said of Megatron's flags that no field stands for, for tests.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <sstream>

#include "cli/small_args.h"
#include "phalanx/cli/megatron_catalogue.h"

namespace phx::testing {

// Names are there once, and none is one that a field stands for.
inline void expect_sound(std::span<const CatalogueGroup> groups) {
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);
  std::set<std::string> names;
  for (const CatalogueGroup& group : groups) {
    size_t in_group = 0;
    for (const char* words : {group.switches, group.values, group.lists}) {
      std::istringstream in(words);
      for (std::string word; in >> word; ++in_group) {
        const std::string name = word.substr(0, word.find('='));
        EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
        EXPECT_EQ(set.find(name), nullptr) << name << " is an option";
      }
    }
    EXPECT_GT(in_group, 0u) << group.reason;
  }
}

// What a run with these flags is told.
inline std::string told(const Texts& flags) {
  Texts extra = {"--train-iters", "1"};
  extra.insert(extra.end(), flags.begin(), flags.end());
  const ParseResult result = parse_pretrain(small(extra));
  std::string text;
  for (const Problem& problem : result.report.problems) text += problem.text + "\n";
  for (const auto& [flag, why] : result.report.implied) text += "implied " + flag + "\n";
  return text;
}

}  // namespace phx::testing
