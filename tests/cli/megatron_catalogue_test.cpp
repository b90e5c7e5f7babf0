#include "cli/megatron_catalogue.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/pretrain_options.h"

namespace phx {
namespace {

TEST(MegatronCatalogue, EveryFlagOfMegatronIsInOneClass) {
  std::ifstream in(std::string(PHX_TEST_DATA) + "/megatron_flags.txt");
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);  // throws when a name is in two classes
  int count = 0;
  for (std::string flag; std::getline(in, flag); ++count) {
    const std::string name = flag.substr(2);
    EXPECT_TRUE(set.find(name) != nullptr || set.find_catalogued(name) != nullptr ||
                name == "yaml-cfg")
        << flag << " is in no class";
  }
  EXPECT_GT(count, 500);
}

TEST(MegatronCatalogue, EveryEntryHasAReason) {
  for (const CatalogueEntry& entry : megatron_catalogue()) {
    EXPECT_FALSE(entry.reason.empty()) << entry.name;
    EXPECT_TRUE(entry.accepts.empty() || entry.kind == kRefused) << entry.name;
  }
}

TEST(MegatronCatalogue, TheFlagsPageIsWhatTheProgramSays) {
  std::ifstream in(std::string(PHX_SOURCE_DIR) + "/docs/flags.md");
  std::ostringstream page;
  page << in.rdbuf();
  EXPECT_TRUE(page.str() == flags_markdown())
      << "docs/flags.md is out of date; write it anew with `phalanx flags > docs/flags.md`";
}

}  // namespace
}  // namespace phx
