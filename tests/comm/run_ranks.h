// Starts the facts program as processes, for tests.
#pragma once

#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <chrono>
#include <map>
#include <string>

#include "phalanx/comm/local_ranks.h"

namespace phx::testing {

struct Outcome {
  LocalRanksResult result;
  std::map<int, std::string> out, error;  // by rank
  double seconds = 0;
};

// `count` processes that run PHX_COMM_FACTS with this argument.
inline Outcome run_facts_program(int count, const std::string& argument,
                                 const std::string& device = "cpu") {
  Outcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  outcome.result = run_local_ranks(
      {.command = {PHX_COMM_FACTS, argument, device}, .count = count, .world_size = count},
      /*stopped_code=*/3, [&](int rank, OutputKind kind, std::string_view line) {
        (kind == OutputKind::out ? outcome.out : outcome.error)[rank] += std::string(line) + "\n";
      });
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

struct CommandOutcome {
  int status;
  std::string output;  // both streams
};
inline CommandOutcome run_command(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (size_t got; (got = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, got);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

// "digest <hex>" of the facts program.
inline std::string digest_in(const std::string& output) {
  const size_t at = output.find("digest ");
  if (at == std::string::npos) {
    ADD_FAILURE() << "no digest in: " << output;
    return "";
  }
  return output.substr(at + 7, output.find('\n', at) - at - 7);
}

}  // namespace phx::testing
