// `phalanx convert` run in this process, and what it said.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "phalanx/cli/convert_command.h"

namespace phx::testing {

inline std::string fixture(const std::string& name) {
  return std::string(PHX_TEST_DATA "/hf/") + name;
}

struct Converted {
  int code;
  std::string out, err;
};

inline Converted convert(const std::vector<std::string>& args) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  int code = -1;
  std::string thrown;
  try {
    code = run_convert(args);
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  Converted outcome{code, ::testing::internal::GetCapturedStdout(),
                    ::testing::internal::GetCapturedStderr()};
  outcome.err += thrown;
  return outcome;
}

}  // namespace phx::testing
