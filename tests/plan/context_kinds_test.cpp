#include "phalanx/plan/context_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phx {
namespace {

// "0 x 1, 1 x 3": the first rank of each kind, and how many are of it.
std::string kinds(int64_t cp, std::vector<std::string> comms, std::optional<int64_t> window,
                  std::vector<int64_t> sizes = {}) {
  TransformerConfig model;
  model.seq_length = 64;
  if (window) model.window_size = WindowSize{*window, 0};
  const ParallelConfig ranks{.context_parallel_size = cp,
                             .cp_comm_type = std::move(comms),
                             .hierarchical_context_parallel_sizes = std::move(sizes)};
  std::string text;
  for (const ContextKind& kind : context_kinds(model, ranks))
    text +=
        (text.empty() ? "" : ", ") + std::to_string(kind.rank) + " x " + std::to_string(kind.count);
  return text;
}

TEST(ContextKinds, WithoutWindowsAllRanksAreAlike) {
  EXPECT_EQ(kinds(1, {"p2p"}, {}), "0 x 1");
  EXPECT_EQ(kinds(8, {"p2p", "all_gather", "a2a"}, {}), "0 x 8");
  EXPECT_EQ(kinds(8, {"p2p"}, -1), "0 x 8");
  EXPECT_EQ(kinds(8, {"all_gather", "a2a"}, 3), "0 x 8") << "windows are cut out of all keys";
}

TEST(ContextKinds, ARankAtAnEndBringsFewerChunksForItsWindows) {
  EXPECT_EQ(kinds(8, {"p2p"}, 4), "0 x 1, 1 x 6, 7 x 1") << "windows of one chunk";
  EXPECT_EQ(kinds(8, {"a2a", "p2p"}, 4), "0 x 1, 1 x 6, 7 x 1");
  EXPECT_EQ(kinds(8, {"p2p"}, 1000), "0 x 1, 1 x 1, 2 x 1, 3 x 1, 4 x 1, 5 x 1, 6 x 1, 7 x 1");
}

TEST(ContextKinds, NeighboursThatExchangeHeadsAreAlike) {
  EXPECT_EQ(kinds(8, {"a2a+p2p"}, 4, {2, 4}), "0 x 2, 2 x 4, 6 x 2");
  EXPECT_EQ(kinds(8, {"a2a+p2p"}, 4, {8, 1}), "0 x 8");
}

}  // namespace
}  // namespace phx
