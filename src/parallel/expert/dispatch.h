// Tokens on the way to the ranks that have their experts, and back, as differentiable functions.
//
// The experts of a layer are cut over `ep` ranks, and each expert over `tp` ranks (the experts' own
// tensor parallelism). Each of these ranks has tokens of its own. Two ways:
//   all_gather   every rank gets all tokens of the group and takes the rows of its experts; results
//                are summed and scattered
//   all_to_all   rows go to the ranks of their experts only. Their number must be known on the
//                host, so this waits for the counts once a layer and micro-batch. With ep 1 every
//                rank needs all rows of the group: it gathers them and waits for nothing.
// Both give each expert its rows in the order of the ranks and, of a rank, of its tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "phalanx/comm/communicator.h"
#include "phalanx/ops/router.h"

namespace phx {

// Where the experts of a layer are.
struct ExpertParallel {
  Communicator* group = nullptr;   // the experts' tp-ep, tp varies fastest; null: one rank
  int ep = 1, tp = 1;              // its axes
  Communicator* tokens = nullptr;  // ranks that share a micro-batch's tokens; null: one

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int tp_rank() const { return rank() % tp; }
  int ep_rank() const { return rank() / tp; }
};

enum class Dispatcher : uint8_t { all_gather, all_to_all };

struct DispatchOptions {
  Dispatcher kind = Dispatcher::all_gather;
  int64_t experts = 1;  // of the layer, on all ranks
  // Room for rows on a rank, as a multiple of what it gets if all experts are used alike; none:
  // room for the worst case.
  std::optional<double> room = {};
};

// Rows of this rank's experts.
struct ExpertInput {
  Tensor rows;     // [r, h]
  Tensor weights;  // [r] in acc_dtype
  Tensor offsets;  // i32 [local experts + 1]
  // [r, h] -> [t, h]: each token's rows, summed; over the experts' tensor-parallel ranks too.
  std::function<Tensor(const Tensor& rows)> combine;
};

// x [t, h]: this rank's tokens.
ExpertInput dispatch(const Tensor& x, const Routing& routing, const ExpertParallel& ranks,
                     const DispatchOptions& options);

// Rows that a rank has room for, of ranks that have so many tokens each. Takes no group.
int64_t expert_rows(int64_t tokens, int64_t topk, const ExpertParallel& ranks,
                    const DispatchOptions& options);

}  // namespace phx
