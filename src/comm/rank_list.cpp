#include "phalanx/comm/rank_list.h"

#include "phalanx/base/error.h"

namespace phx {

std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kMost = 20;  // runs of ranks that a line can hold
  std::vector<std::string> runs;
  size_t named = 0;
  for (size_t i = 0; i < ranks.size() && runs.size() < kMost;) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    runs.push_back(end - i > 1 ? str_cat(ranks[i], " to ", ranks[end - 1]) : str_cat(ranks[i]));
    named += end - i;
    i = end;
  }
  if (named < ranks.size()) runs.push_back(str_cat(ranks.size() - named, " more"));
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i)
    text += str_cat(i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ", runs[i]);
  return text;
}

}  // namespace phx
