// Megatron's pipeline layout string: stages separated by '|', each a row of tokens
//
//   E embedding    t decoder layer    m multi-token-prediction layer    L final norm, head and loss
//
// `x*n` repeats a token and `(...)*n` a group; commas and spaces mean nothing. A stage may be
// empty.
//   "Et*3|(tt|)*29,m|L" is the stages Ettt, 29 times tt, m, L.
#pragma once

#include <string>
#include <vector>

namespace phx {

// The tokens of each stage, written out: {"Ettt", "tt", .., "m", "L"}. Throws an Error that names
// the place if the string cannot be read; says nothing on whether the stages make sense.
std::vector<std::string> parse_layout(const std::string& layout);

}  // namespace phx
