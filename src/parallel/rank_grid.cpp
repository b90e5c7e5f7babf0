#include "phalanx/parallel/rank_grid.h"

#include <algorithm>

#include "phalanx/base/error.h"

namespace phx {

namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '-') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

int AxisSizes::of(std::string_view axis) const {
  if (axis == "tp") return tp;
  if (axis == "cp") return cp;
  if (axis == "ep") return ep;
  if (axis == "dp") return dp;
  if (axis == "pp") return pp;
  throw_error(
      str_cat("'", std::string(axis), "' is no axis of the mesh; they are tp, cp, ep, dp, pp"));
}

RankGrid::RankGrid(const AxisSizes& sizes, const std::string& order)
    : sizes_(sizes), order_(split(order)) {
  auto sorted = order_;
  std::sort(sorted.begin(), sorted.end());
  PHX_CHECK((sorted == std::vector<std::string>{"cp", "dp", "ep", "pp", "tp"}),
            "the order of ranks '", order, "' should name tp, cp, ep, dp and pp once each");
  for (const auto& axis : order_)
    PHX_CHECK(sizes.of(axis) >= 1, "axis ", axis, " has ", sizes.of(axis), " ranks");
}

int RankGrid::index(int rank, std::string_view axis) const {
  PHX_CHECK(rank >= 0 && rank < size(), "rank ", rank, " is outside of a world of ", size());
  for (const auto& name : order_) {
    if (name == axis) return rank % sizes_.of(name);
    rank /= sizes_.of(name);
  }
  throw_error(str_cat("'", std::string(axis), "' is no axis of the mesh"));
}

std::vector<std::vector<int>> RankGrid::groups(std::string_view tokens) const {
  const auto wanted = split(tokens);
  for (const auto& token : wanted) sizes_.of(token);  // refuses what is no axis
  // Ranks in order: those that agree outside of the tokens meet in one group, in rank order, and
  // groups stand in the order of their first member, as the decomposition by axes gives them.
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < size(); ++rank) {
    const auto same = std::ranges::find_if(groups, [&](const std::vector<int>& group) {
      return std::ranges::all_of(order_, [&](const std::string& axis) {
        return std::ranges::find(wanted, axis) != wanted.end() ||
               index(group[0], axis) == index(rank, axis);
      });
    });
    if (same == groups.end()) {
      groups.push_back({rank});
    } else {
      same->push_back(rank);
    }
  }
  return groups;
}

std::vector<int> RankGrid::group_of(int rank, std::string_view tokens) const {
  // Without the other groups: a world of thousands must not cost its square.
  const auto wanted = split(tokens);
  std::vector<int> group = {0};
  int stride = 1;
  for (const auto& axis : order_) {
    const int size = sizes_.of(axis);
    const bool varies = std::ranges::find(wanted, axis) != wanted.end();
    std::vector<int> longer;
    for (int i = 0; i < (varies ? size : 1); ++i)
      for (const int base : group)
        longer.push_back(base + stride * (varies ? i : index(rank, axis)));
    group = std::move(longer);
    stride *= size;
  }
  return group;
}

std::vector<std::vector<int>> embedding_groups(const RankGrid& grid) {
  std::vector<std::vector<int>> result;
  for (const auto& group : grid.groups("pp")) {
    result.push_back({group.front()});
    if (group.size() > 1) result.back().push_back(group.back());
  }
  return result;
}

std::vector<std::vector<int>> position_embedding_groups(const RankGrid& grid) {
  std::vector<std::vector<int>> result;
  for (const auto& group : grid.groups("pp")) result.push_back({group.front()});
  return result;
}

std::vector<std::vector<int>> consecutive_parts(const std::vector<std::vector<int>>& whole,
                                                int size) {
  std::vector<std::vector<int>> parts;
  for (const auto& group : whole) {
    PHX_CHECK(size >= 1 && int(group.size()) % size == 0, "a group of ", group.size(),
              " ranks cannot be cut into parts of ", size);
    for (size_t i = 0; i < group.size(); i += size_t(size))
      parts.emplace_back(group.begin() + int64_t(i), group.begin() + int64_t(i) + size);
  }
  return parts;
}

std::vector<std::vector<int>> strided_parts(const std::vector<std::vector<int>>& whole, int count) {
  std::vector<std::vector<int>> parts;
  for (const auto& group : whole) {
    PHX_CHECK(count >= 1 && int(group.size()) % count == 0, "a group of ", group.size(),
              " ranks cannot be cut into ", count, " parts");
    for (int first = 0; first < count; ++first) {
      parts.emplace_back();
      for (size_t i = size_t(first); i < group.size(); i += size_t(count))
        parts.back().push_back(group[i]);
    }
  }
  return parts;
}

}  // namespace phx
