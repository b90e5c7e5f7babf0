// Ranks with a part of the weights each are killed with SIGKILL while they gather weights, while
// they sum gradients, while they save, and at any time; the run is started again each time, and
// ends with the bytes of a run that nobody disturbed.
//
// PHX_KILLS: how many kills of a run instead of four, for the nightly tests.
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "cli/launched_run.h"
#include "phalanx/comm/ledger.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace phx::testing;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

int64_t num_kills() {
  const char* given = std::getenv("PHX_KILLS");
  return given == nullptr ? 4 : std::atoll(given);
}

bool until(const std::function<bool()>& done, milliseconds patience = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(microseconds(200));
  }
  return true;
}

// The launcher's ranks, stopped as long as this lives: what they are in the middle of stays so.
class Stopped {
 public:
  explicit Stopped(std::vector<pid_t> ranks) : ranks_(std::move(ranks)) {
    for (const pid_t rank : ranks_) ::kill(rank, SIGSTOP);
    for (const pid_t rank : ranks_) until([&] { return is_stopped(rank); });
  }
  ~Stopped() {
    for (const pid_t rank : ranks_) ::kill(rank, SIGCONT);
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  // A process that is gone stops no more.
  static bool is_stopped(pid_t process) {
    std::ifstream in(str_cat("/proc/", process, "/stat"));
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) return true;
    const char state = text.at(name_end + 2);
    return state == 'T' || state == 'Z';
  }

  std::vector<pid_t> ranks_;
};

// What a rank is in the middle of, by its ledger: the call it entered last, if it has not left it.
std::optional<LedgerEntry> unfinished_call(const Path& ledgers, int rank) {
  try {
    const auto entries = read_ledger(ledgers / str_cat("rank-", rank, ".ledger"));
    if (!entries.empty() && !entries.back().finished) return entries.back();
  } catch (const Error&) {  // the rank has not made it yet
  }
  return std::nullopt;
}

// A checkpoint that was begun after `since`: a rank that was killed in a save leaves its folder.
bool is_writing(const Path& saved, std::filesystem::file_time_type since) {
  std::error_code gone;  // renamed while we look
  for (const auto& entry : std::filesystem::directory_iterator(saved, gone))
    if (entry.path().extension() == ".tmp" && entry.last_write_time(gone) > since && !gone)
      return true;
  return false;
}

enum class When { gathers_weights, sums_gradients, saves, any_time };
constexpr When kWhen[] = {When::gathers_weights, When::saves, When::sums_gradients, When::any_time};

class KilledRun {
 public:
  // `any_time`: a kill at any time comes within this after the ranks began.
  KilledRun(const std::string& arguments, int ranks, const Path& folder, milliseconds any_time)
      : saved_(folder / "disturbed"),
        ledgers_(folder / "ledgers"),
        num_ranks_(ranks),
        any_time_(any_time),
        random_(uint64_t(ranks)) {
    ::setenv("PHX_LEDGER_DIR", ledgers_.c_str(), 1);
    launcher_.emplace(arguments + " --save " + saved_.string(), folder / "log");
    ::unsetenv("PHX_LEDGER_DIR");
  }

  // One rank, any of them.
  void kill_one(When when) {
    // Behind a new checkpoint: the pause before a restart doubles without one.
    const int64_t before = latest();
    if (when != When::any_time && when != When::saves) {
      ASSERT_TRUE(until([&] { return latest() > before; })) << launcher_->said();
    }
    ASSERT_TRUE(until([&] { return all_new(); })) << launcher_->said();
    const int victim = int(random_() % uint64_t(num_ranks_));
    if (when == When::any_time)
      std::this_thread::sleep_for(milliseconds(random_() % uint64_t(any_time_.count())));
    else
      std::this_thread::sleep_for(microseconds(random_() % 20000));
    ASSERT_TRUE(until([&] { return kill_if(when, victim); })) << launcher_->said();
  }

  int64_t latest() const { return latest_checkpoint(saved_).value_or(0); }
  int wait() { return launcher_->wait(); }
  std::string said() const { return launcher_->said(); }

 private:
  bool all_new() const {
    const std::vector<pid_t> ranks = launcher_->ranks();
    return int(ranks.size()) == num_ranks_ && ranks != killed_;
  }

  bool is_at(When when, int victim) const {
    if (when == When::any_time) return true;
    if (when == When::saves) return is_writing(saved_, killed_at_);
    const auto call = unfinished_call(ledgers_, victim);
    if (!call) return false;
    const char* where =
        when == When::gathers_weights ? "sharded_weights.cpp" : "sharded_gradients.cpp";
    return call->site.find(where) != std::string::npos;
  }

  // Where the victim really is at that point once nothing moves any more.
  bool kill_if(When when, int victim) {
    if (!is_at(when, victim)) return false;
    const std::vector<pid_t> ranks = launcher_->ranks();
    if (int(ranks.size()) != num_ranks_) return false;
    const Stopped stopped(ranks);
    if (!is_at(when, victim)) return false;
    ::kill(ranks[size_t(victim)], SIGKILL);
    killed_ = ranks;
    killed_at_ = std::filesystem::file_time_type::clock::now();
    return true;
  }

  Path saved_, ledgers_;
  int num_ranks_;
  milliseconds any_time_;
  std::mt19937_64 random_;
  std::optional<Launcher> launcher_;
  std::vector<pid_t> killed_;
  std::filesystem::file_time_type killed_at_ = std::filesystem::file_time_type::min();
};

struct Layout {
  const char* name;
  const char* flags;
  int ranks;
};

class KilledRanks : public ::testing::TestWithParam<Layout> {};

TEST_P(KilledRanks, LoseNothing) {
  const Layout& layout = GetParam();
  const TempFolder folder;
  const int64_t kills = num_kills(), iterations = 60 * (kills + 1);
  const std::string arguments =
      str_cat("--nproc ", layout.ranks, " --max-restarts 1000 pretrain", kSmallRun,
              " --train-iters ", iterations, " --use-megatron-fsdp ", layout.flags);
  const auto began = std::chrono::steady_clock::now();
  Launcher undisturbed(str_cat(arguments, " --save ", (folder / "undisturbed").string()),
                       folder / "log-undisturbed");
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.said();
  // A quarter of what a kill may use up, whatever the machine's speed is.
  const auto whole =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began);
  KilledRun run(arguments, layout.ranks, folder.path(),
                std::max(milliseconds(1), whole / (4 * (kills + 1))));
  int64_t saved = 0;
  for (int64_t i = 0; i < kills; ++i) {
    SCOPED_TRACE(str_cat("kill ", i));
    ASSERT_NO_FATAL_FAILURE(run.kill_one(kWhen[i % std::size(kWhen)]));
    EXPECT_GE(run.latest(), saved) << "a kill took a checkpoint away";
    saved = run.latest();
  }
  EXPECT_EQ(run.wait(), 0) << run.said();
  const std::string said = run.said();
  EXPECT_THAT(said, HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_THAT(said, HasSubstr("--auto-resume: the run goes on from "));
  expect_same_end(folder / "disturbed", folder / "undisturbed", iterations);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, KilledRanks,
    ::testing::Values(Layout{"with_a_part_of_the_weights", "", 2},
                      Layout{"in_two_groups_that_save_in_the_background",
                             "--num-distributed-optimizer-instances 2 --bf16 --async-save", 4}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace phx
