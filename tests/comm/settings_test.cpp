#include "phalanx/comm/settings.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "phalanx/comm/tcp_store.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using testing::error_of;

TEST(Settings, TextGoesThereAndBack) {
  const Settings settings = {{"--lr", "0.001"}, {"odd \"key\"", "a\nb"}, {"empty", ""}};
  EXPECT_EQ(parse_settings(settings_text(settings)), settings);
}

TEST(Settings, ADifferenceHasTheSettingItsValuesAndTheRanks) {
  const std::vector<Settings> of_ranks = {{{"--lr", "1"}, {"--seed", "7"}},
                                          {{"--lr", "2"}, {"--seed", "7"}},
                                          {{"--lr", "1"}, {"--seed", "7"}, {"NCCL_ALGO", "Ring"}}};
  EXPECT_EQ(settings_differences(of_ranks),
            "the ranks of this run were not started alike:"
            "\n  --lr: 1 on ranks 0 and 2; 2 on rank 1"
            "\n  NCCL_ALGO: nothing on ranks 0 and 1; Ring on rank 2"
            "\n  hint: start every rank with the same program, flags, data and environment");
  EXPECT_EQ(settings_differences(std::vector<Settings>(3, of_ranks[0])), "");
}

TEST(Settings, ManyValuesAreCut) {
  std::vector<Settings> of_ranks;
  for (int rank = 0; rank < 9; ++rank)
    of_ranks.push_back({{"--seed", std::to_string(rank < 3 ? 1234 : rank)}});
  EXPECT_NE(
      settings_differences(of_ranks).find("--seed: 1234 on ranks 0 to 2; 3 on rank 3; 4 on rank "
                                          "4; 5 on rank 5; and 3 other values"),
      std::string::npos);
}

// Ranks as threads, each with a store of its own, as processes have.
std::vector<std::string> compared(const std::vector<Settings>& of_ranks) {
  const int port = listen_on(0).port;
  std::vector<std::string> errors(of_ranks.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        TcpStore store(
            {.port = port, .rank = int(rank), .size = int(of_ranks.size()), .timeout = 20s});
        compare_settings(store, int(rank), int(of_ranks.size()), of_ranks[rank]);
        store.set("goes on", "");
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Settings, AllRanksSayTheSameAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> errors =
      compared({{{"--lr", "1"}}, {{"--lr", "1"}}, {{"--lr", "2"}}, {{"--lr", "1"}}});
  for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
  EXPECT_NE(errors[0].find("--lr: 1 on ranks 0, 1 and 3; 2 on rank 2"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s) << "nobody waited for a time-out";
}

TEST(Settings, RanksThatAreAlikeGoOn) {
  for (const std::string& error : compared(std::vector<Settings>(3, {{"--lr", "1"}})))
    EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace phx
