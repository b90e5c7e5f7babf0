// Starts the ranks of one machine as processes, passes their output on line by line, and sees to
// it that when one fails all end. What `phalanx launch` does.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

struct LocalRanks {
  std::vector<std::string> command;  // the program and its arguments
  int count = 1;                     // ranks to start here
  int first_rank = 0;                // the others are on machines before
  int world_size = 1;
  std::string master_host = "127.0.0.1";
  int port = 0;  // of the TCP store; 0: any that is free here
  // More variables for every rank, "NAME=value". The job's key is one of the launcher's own, or, if
  // all ranks are here and there is none, one that is made for them.
  std::vector<std::string> variables;
  // How long the others may take to end by themselves when one has failed, and then after SIGTERM.
  std::chrono::milliseconds patience = std::chrono::seconds(3);
  std::chrono::milliseconds grace = std::chrono::seconds(20);
};

enum class OutputKind { out, error };
using OnLine = std::function<void(int rank, OutputKind kind, std::string_view line)>;

struct RankEnd {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;  // that killed it; 0: it ended by itself
};
// "rank 3 ended with exit code 1", "rank 3 was killed by signal 9 (Killed)"
std::string describe(const RankEnd& end);

struct LocalRanksResult {
  std::optional<RankEnd> first_failure;  // neither 0 nor `stopped_code`
  bool stopped = false;                  // a rank ended with `stopped_code`
  bool told_to_stop = false;             // a signal was passed on
};

// Returns when all have ended. SIGTERM, SIGINT, SIGUSR1 and SIGHUP (unless it is ignored, as under
// nohup) that reach this process meanwhile are passed on to every rank; an exit code of
// `stopped_code` then is no failure.
LocalRanksResult run_local_ranks(const LocalRanks& ranks, int stopped_code, const OnLine& on_line);

// Waits while there are no ranks. False if one of these signals came, at once then.
bool wait_without_ranks(std::chrono::milliseconds time);

}  // namespace phx
