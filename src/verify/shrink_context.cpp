#include "phalanx/verify/shrink_context.h"

#include <algorithm>
#include <string>
#include <vector>

namespace phx {

void shrink_context_ranks(ParallelConfig& ranks, int64_t cp) {
  ranks.context_parallel_size = cp;
  std::vector<int64_t>& sizes = ranks.hierarchical_context_parallel_sizes;
  if (sizes.empty()) return;
  const int64_t inner = sizes[0] > 1 && cp % 2 == 0 ? 2 : sizes[0] > 1 ? cp : 1;
  sizes = {inner, cp / inner};
}

namespace {

std::vector<std::string> kinds_of(const std::vector<std::string>& comms) {
  std::vector<std::string> kinds;
  for (const std::string& comm : comms)
    if (std::ranges::find(kinds, comm) == kinds.end()) kinds.push_back(comm);
  return kinds;
}

}  // namespace

std::string ways_of_layers(const ParallelConfig& ranks) {
  std::string text;
  for (const std::string& kind : kinds_of(ranks.cp_comm_type))
    text += (text.empty() ? "" : " ") + kind;
  return text;
}

void share_out_context_comms(ParallelConfig& ranks, int64_t layers) {
  std::vector<std::string>& comms = ranks.cp_comm_type;
  if (comms.size() == 1 || int64_t(comms.size()) == layers) return;
  const std::vector<std::string> kinds = kinds_of(comms);
  comms.clear();
  for (int64_t i = 0; i < layers; ++i) comms.push_back(kinds[size_t(i) % kinds.size()]);
}

}  // namespace phx
