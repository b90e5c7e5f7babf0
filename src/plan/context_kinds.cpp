#include "phalanx/plan/context_kinds.h"

#include <algorithm>
#include <map>

#include "phalanx/parallel/context/gathered_attention.h"
#include "phalanx/train/context_layout.h"

namespace phx {

namespace {

// What of its own chunks and of other ranks' is on a rank in a layer with a window.
std::vector<int64_t> reach_of(const TransformerConfig& model, const SequenceCut& cut) {
  const int64_t chunk = cut.chunk_rows(model.seq_length);
  const ContextProblem problem{.in = {},
                               .options = {.window_left = int(model.window_size->left)},
                               .packed = {},
                               .cut = cut,
                               .chunk = chunk};
  std::vector<int64_t> reach = {int64_t(seen_chunks(problem, cut.rank).size())};
  for (const int64_t own : cut.chunks()) {
    const auto [first, last] = problem.seen(own);
    reach.push_back(last - first);
    int64_t readers = 0;
    for (int64_t rank = 0; rank < cut.ranks; ++rank)
      readers += std::ranges::count(seen_chunks(problem, rank), own);
    reach.push_back(readers);
  }
  return reach;
}

}  // namespace

std::vector<ContextKind> context_kinds(const TransformerConfig& model,
                                       const ParallelConfig& ranks) {
  const auto cp = int(ranks.context_parallel_size);
  const auto has = [&](const char* comm) {
    return std::ranges::find(ranks.cp_comm_type, comm) != ranks.cp_comm_type.end();
  };
  if (!model.window_size || model.window_size->left < 0) return {{.rank = 0, .count = cp}};
  const int64_t inner = neighbours_that_exchange_heads(ranks);
  std::map<std::vector<int64_t>, size_t> seen;
  std::vector<ContextKind> kinds;
  for (int rank = 0; rank < cp; ++rank) {
    std::vector<int64_t> reach;
    const auto add = [&](const SequenceCut& cut) {
      const std::vector<int64_t> more = reach_of(model, cut);
      reach.insert(reach.end(), more.begin(), more.end());
    };
    if (has("p2p")) add({.ranks = cp, .rank = rank});
    if (has("a2a+p2p")) add({.ranks = cp / inner, .rank = rank / inner});
    const auto [found, made] = seen.try_emplace(reach, kinds.size());
    if (made)
      kinds.push_back({.rank = rank, .count = 1});
    else
      ++kinds[found->second].count;
  }
  return kinds;
}

}  // namespace phx
