// The ranks that share every sequence (context parallelism), and how attention of a layer reaches
// the keys of the others. Everything else of a layer works on a token at a time and needs nothing.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "phalanx/comm/communicator.h"
#include "phalanx/parallel/context/sequence_cut.h"

namespace phx {

// Megatron's names.
//   p2p         keys and values go round from rank to rank, each part's result is merged; with a
//               window only the chunks in its reach travel, straight to whoever needs them
//   all_gather  every rank gets all keys and values
//   a2a         ranks exchange heads for positions: each has some heads of the whole sequence
//   a2a+p2p     a2a within groups of neighbours, p2p between those groups
enum class ContextComm : uint8_t { p2p, all_gather, a2a, a2a_p2p };
inline constexpr const char* kContextComms[] = {"p2p", "all_gather", "a2a", "a2a+p2p"};
ContextComm context_comm(const std::string& name);
std::vector<ContextComm> context_comms(const std::vector<std::string>& names);

struct ContextParallel {
  Communicator* group = nullptr;  // null: one rank
  // For a2a+p2p: neighbours that exchange heads, and the ranks of other such groups that keys go
  // round to.
  Communicator *inner = nullptr, *outer = nullptr;
  std::vector<ContextComm> comm = {ContextComm::p2p};  // of each layer, or one for all

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  // Throws unless a layer is told of the rows that these ranks have.
  void check(const SequenceCut& told) const;
  SequenceCut cut() const { return {.ranks = size(), .rank = rank()}; }
  ContextComm comm_of(int64_t layer) const {
    // Layers of multi-token prediction are behind those of the flag: they take the last one's.
    return comm[std::min(size_t(layer), comm.size() - 1)];
  }
};

}  // namespace phx
