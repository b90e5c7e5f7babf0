// The command line of a small run, for tests of options.
#pragma once

#include <string>
#include <vector>

#include "phalanx/cli/pretrain_options.h"

namespace phx::testing {

using Texts = std::vector<std::string>;

inline Texts small(Texts extra) {
  Texts args = {"--num-layers",
                "2",
                "--hidden-size",
                "32",
                "--num-attention-heads",
                "4",
                "--seq-length",
                "16",
                "--max-position-embeddings",
                "16",
                "--micro-batch-size",
                "2",
                "--lr",
                "1e-3",
                "--vocab-size",
                "100",
                "--mock-data"};
  args.insert(args.end(), extra.begin(), extra.end());
  return args;
}

// What is wrong with a command line.
inline Texts problems(const Texts& args) {
  Texts texts;
  for (const Problem& problem : parse_pretrain(args).report.problems) texts.push_back(problem.text);
  return texts;
}

}  // namespace phx::testing
