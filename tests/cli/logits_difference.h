// How far the logits of a checkpoint are from those that another program computed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cli/captured.h"
#include "phalanx/base/file.h"

namespace phx::testing {

// The largest difference, absolute, of the logits of `model` (--megatron DIR or --native DIR) to a
// file's.
inline double logits_difference(const std::vector<std::string>& model, const Path& file) {
  std::vector<std::string> args = {"convert",     "check", "--logits",       file,
                                   "--tolerance", "1e9",   "--kl-tolerance", "1e9"};
  args.insert(args.end(), model.begin(), model.end());
  const auto outcome = run(args);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const std::string what = "largest difference ";
  const size_t at = outcome.out.find(what);
  return at == std::string::npos ? INFINITY : std::stod(outcome.out.substr(at + what.size()));
}

}  // namespace phx::testing
