// Which ranks talk to which: Megatron's order of ranks and its groups, as pure functions.
//
// An order names the axes from the fastest: in "tp-cp-ep-dp-pp" neighbouring ranks differ in tp. A
// group holds the ranks that differ only in the axes of its tokens, e.g. "dp-cp"; inside of it the
// axis that comes first in the order varies fastest. Two grids share the world: the dense one (ep =
// 1) and the expert one (tp is then the experts' tensor parallelism, cp = 1).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace phx {

inline constexpr const char* kDefaultOrder = "tp-cp-ep-dp-pp";
inline constexpr const char* kPipelineBeforeData = "tp-cp-ep-pp-dp";  // --use-tp-pp-dp-mapping

struct AxisSizes {
  int tp = 1, cp = 1, ep = 1, dp = 1, pp = 1;
  int of(std::string_view axis) const;  // by name; an error names the axes
  int world() const { return tp * cp * ep * dp * pp; }
};

class RankGrid {
 public:
  explicit RankGrid(const AxisSizes& sizes, const std::string& order = kDefaultOrder);

  int size() const { return sizes_.world(); }
  const AxisSizes& sizes() const { return sizes_; }
  int index(int rank, std::string_view axis) const;  // a rank's coordinate
  // All groups of the given axes ("dp-cp"), and the one that holds `rank`.
  std::vector<std::vector<int>> groups(std::string_view tokens) const;
  std::vector<int> group_of(int rank, std::string_view tokens) const;

 private:
  AxisSizes sizes_;
  std::vector<std::string> order_;  // the fastest axis first
};

// First and last rank of every pipeline group: those that hold a tied embedding. One rank each with
// a pipeline of one.
std::vector<std::vector<int>> embedding_groups(const RankGrid& grid);
// The first rank of every pipeline group.
std::vector<std::vector<int>> position_embedding_groups(const RankGrid& grid);
// Each group of `whole` cut into consecutive parts of `size`.
std::vector<std::vector<int>> consecutive_parts(const std::vector<std::vector<int>>& whole,
                                                int size);
// Each group of `whole` cut into `count` parts whose members are `count` apart.
std::vector<std::vector<int>> strided_parts(const std::vector<std::vector<int>>& whole, int count);

}  // namespace phx
