// A command of the program, run in this process, and what it said.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "phalanx/cli/commands.h"

namespace phx::testing {

struct Outcome {
  int code;
  std::string out, err;
};

inline Outcome run(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_phalanx(args);
  const std::string out = ::testing::internal::GetCapturedStdout();
  return {code, out, ::testing::internal::GetCapturedStderr()};
}

}  // namespace phx::testing
