// docs/parity.md says how many layouts each matrix has and in how many turns they are run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>

#include "phalanx/base/file.h"
#include "verify/ahead_matrix.h"
#include "verify/attention_matrix.h"
#include "verify/context_matrix.h"
#include "verify/expert_matrix.h"
#include "verify/matrix_sample.h"
#include "verify/shard_matrix.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Matrix {
  const char* test;
  const std::vector<MatrixLayout>& layouts;
};

TEST(MatrixSizes, ThePageHasThemAll) {
  const std::vector<MatrixLayout> parity = parity_matrix();
  const Matrix matrices[] = {{"ParityMatrix", parity},
                             {"ExpertMatrix", expert_matrix()},
                             {"AheadMatrix", ahead_matrix()},
                             {"AttentionMatrix", attention_matrix()},
                             {"ContextMatrix", context_matrix()},
                             {"ShardMatrix", shard_matrix()}};
  const std::string page = read_file(std::string(PHX_SOURCE_DIR) + "/docs/parity.md");
  for (const Matrix& matrix : matrices) {
    const size_t layouts = matrix.layouts.size(), turns = sample_turns(layouts);
    size_t fewest = layouts, most = 0;
    for (size_t turn = 0; turn < turns; ++turn) {
      const size_t sample = sample_of_turn(matrix.layouts, turn).size();
      fewest = std::min(fewest, sample);
      most = std::max(most, sample);
    }
    const std::string row = fmt::format(
        "| `{}` | {} | {} | {} |", matrix.test, layouts, turns,
        fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most));
    std::cout << row << " " << every_setting_once(matrix.layouts).size() << "\n";
    EXPECT_NE(page.find(row), std::string::npos) << "docs/parity.md should have the row " << row;
  }
}

}  // namespace
}  // namespace phx
