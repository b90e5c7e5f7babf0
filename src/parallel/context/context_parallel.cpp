#include "phalanx/parallel/context/context_parallel.h"

#include <algorithm>
#include <iterator>

#include "phalanx/base/error.h"

namespace phx {

ContextComm context_comm(const std::string& name) {
  const auto found = std::ranges::find(kContextComms, name);
  PHX_CHECK(found != std::end(kContextComms), "--cp-comm-type ", name,
            " is none of p2p, all_gather, a2a and a2a+p2p");
  return ContextComm(found - std::begin(kContextComms));
}

void ContextParallel::check(const SequenceCut& told) const {
  PHX_CHECK(told == cut(), "attention of rank ", rank(), " of ", size(),
            " that share a sequence was told of rows of rank ", told.rank, " of ", told.ranks,
            "\n  hint: a model sets ForwardContext::cut to that of ModelRanks::context");
}

std::vector<ContextComm> context_comms(const std::vector<std::string>& names) {
  std::vector<ContextComm> comms;
  for (const std::string& name : names) comms.push_back(context_comm(name));
  return comms;
}

}  // namespace phx
