// What is wrong with options, each thing with its way out: all are collected, none stops the
// reading.
#pragma once

#include <string>
#include <vector>

namespace phx {

enum class ProblemKind { unknown, refused, value, rule, file };

struct Problem {
  ProblemKind kind = ProblemKind::rule;
  std::string flag;  // "--name", where the problem has one
  std::string text;  // names the flag and the values, states the rule
  std::string hint;  // the way out; may be empty
};
using Problems = std::vector<Problem>;

// "error: ...\n  hint: ...\n" for each; refusals with the same reason share one entry.
std::string format_problems(const Problems& problems);

}  // namespace phx
