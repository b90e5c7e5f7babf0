// Ranks in messages.
#pragma once

#include <string>
#include <vector>

namespace phx {

// "rank 3", "ranks 2 and 3", "ranks 0, 2 and 4 to 7"; the ranks ascend.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace phx
