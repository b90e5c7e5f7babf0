#include "data/data_config.h"

#include "base/option_rules.h"

namespace phx {

std::vector<Rule> data_rules() {
  const char* why = "tokens have one source";
  return {
      at_most_one({"mock-data", "token-file", "data-path"}, why),
      at_most_one({"mock-data", "token-file", "train-data-path"}, why),
      excludes("data-path", "train-data-path", "data has shares of one blend, or its own blends"),
      excludes("data-path", "valid-data-path", "data has shares of one blend, or its own blends"),
      excludes("data-path", "test-data-path", "data has shares of one blend, or its own blends"),
      requires_option("valid-data-path", "train-data-path",
                      "training needs a blend of its own then"),
      requires_option("test-data-path", "train-data-path",
                      "training needs a blend of its own then"),
      requires_option("merge-file", "vocab-file", "GPT-2 BPE has both"),
  };
}

}  // namespace phx
