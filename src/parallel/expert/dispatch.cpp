#include "phalanx/parallel/expert/dispatch.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "phalanx/core/autograd.h"
#include "phalanx/core/compute_stream.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/ops/expert_rows.h"
#include "phalanx/parallel/tensor/tensor_parallel.h"

namespace phx {

namespace {

int64_t local_experts(const ExpertParallel& ranks, const DispatchOptions& options) {
  return options.experts / ranks.ep;
}

ExpertInput dispatch_here(const Tensor& x, const Routing& routing, int64_t experts) {
  const ExpertOrder order =
      order_by_expert(routing.indices, 0, experts, routing.indices.numel());  // all of them fit
  return {.rows = to_expert_rows(x, order),
          .weights = to_expert_weights(routing.probs, order),
          .offsets = order.offsets,
          .combine = [order](const Tensor& y) { return from_expert_rows(y, order); }};
}

ExpertInput dispatch_by_gathering(const Tensor& x, const Routing& routing,
                                  const ExpertParallel& ranks, const DispatchOptions& options) {
  const TensorParallel all{.group = ranks.group, .sequence = true};
  const int64_t local = local_experts(ranks, options), g = ranks.group->size();
  const Tensor indices = gather_sequence(routing.indices, all);  // [g t, k]
  const ExpertOrder order =
      order_by_expert(indices, ranks.ep_rank() * local, local,
                      expert_rows(x.dim(0), routing.indices.dim(1), ranks, options));
  PHX_ASSERT(indices.dim(0) == g * x.dim(0), "gathered ", indices.shape());
  return {.rows = to_expert_rows(enter_region(x, all), order),                    // [r, h]
          .weights = to_expert_weights(enter_region(routing.probs, all), order),  // [r]
          .offsets = order.offsets,
          .combine = [order, all](const Tensor& y) {
            return leave_region(from_expert_rows(y, order), all);  // [g t, h] -> [t, h]
          }};
}

// Rows between ranks, all at once; a rank's own are copied.
class Exchange {
 public:
  explicit Exchange(const ExpertParallel& ranks) : group_(*ranks.group) {}
  void send(const Tensor& x, int64_t first, int64_t rows, int peer) {
    if (rows > 0) add(Message::Kind::send, x.rows(first, rows), peer);
  }
  void receive(const Tensor& x, int64_t first, int64_t rows, int peer) {
    if (rows > 0) add(Message::Kind::receive, x.rows(first, rows), peer);
  }
  void run(Stream stream) {
    if (own_[0].defined()) copy(own_[0], own_[1]);
    group_.exchange(messages_, stream);
  }

 private:
  void add(Message::Kind kind, const Tensor& x, int peer) {
    if (peer == group_.rank()) {
      own_[kind == Message::Kind::send ? 0 : 1] = x;
    } else {
      messages_.push_back({.kind = kind, .tensor = x, .peer = peer});
    }
  }

  Communicator& group_;
  std::vector<Message> messages_;
  Tensor own_[2];  // from, to
};

// Who sends how many rows to whom. Blocks lie one behind the other in the order of the ranks' ep.
struct Splits {
  std::vector<int64_t> to;    // rows for each ep rank: those of its experts
  std::vector<int64_t> from;  // rows from each rank of the group
};

// The rows of `sent` for each ep rank go to all tensor-parallel ranks of it; `received` gets what
// comes, in the order of ranks. [n, ..] -> [r, ..]
void send_rows(const Tensor& sent, const Tensor& received, const Splits& splits,
               const ExpertParallel& ranks) {
  Exchange exchange(ranks);
  int64_t begin = 0;
  for (int ep = 0; ep < ranks.ep; begin += splits.to[size_t(ep++)])
    for (int tp = 0; tp < ranks.tp; ++tp)
      exchange.send(sent, begin, splits.to[size_t(ep)], ep * ranks.tp + tp);
  begin = 0;
  for (size_t peer = 0; peer < splits.from.size(); begin += splits.from[peer++])
    exchange.receive(received, begin, splits.from[peer], int(peer));
  exchange.run(compute_stream(sent));
}

// The way back: what came from a rank goes to it again, and what the tensor-parallel ranks of an
// expert return is summed, in their order. [r, ..] -> [n, ..]
Tensor return_rows(const Tensor& sent, int64_t rows, const Splits& splits,
                   const ExpertParallel& ranks) {
  Shape shape = sent.shape();
  shape.set(0, rows);
  Exchange exchange(ranks);
  int64_t begin = 0;
  for (size_t peer = 0; peer < splits.from.size(); begin += splits.from[peer++])
    exchange.send(sent, begin, splits.from[peer], int(peer));
  std::vector<Tensor> parts;
  for (int tp = 0; tp < ranks.tp; ++tp) {
    parts.push_back(empty(shape, sent.dtype(), sent.device()));
    begin = 0;
    for (int ep = 0; ep < ranks.ep; begin += splits.to[size_t(ep++)])
      exchange.receive(parts.back(), begin, splits.to[size_t(ep)], ep * ranks.tp + tp);
  }
  exchange.run(compute_stream(sent));
  for (size_t tp = 1; tp < parts.size(); ++tp) kernels::add(parts[0], parts[tp], parts[0]);
  return parts[0];
}

// counts: rows of every rank of the group and every expert, [g, e].
Splits splits_of(const std::vector<int32_t>& counts, const ExpertParallel& ranks, int64_t experts) {
  const int64_t local = experts / ranks.ep;
  Splits splits;
  const auto block = [&](int64_t rank, int64_t ep) {
    int64_t rows = 0;
    for (int64_t i = 0; i < local; ++i) rows += counts[size_t(rank * experts + ep * local + i)];
    return rows;
  };
  for (int ep = 0; ep < ranks.ep; ++ep) splits.to.push_back(block(ranks.rank(), ep));
  for (int rank = 0; rank < ranks.group->size(); ++rank)
    splits.from.push_back(block(rank, ranks.ep_rank()));
  return splits;
}

// Nothing is known of a meta device's rows: as many for every expert.
std::vector<int32_t> even_counts(int64_t rows, int64_t experts, int64_t ranks) {
  std::vector<int32_t> counts;
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t e = 0; e < experts; ++e)
      counts.push_back(int32_t(rows * (e + 1) / experts - rows * e / experts));
  return counts;
}

// Rows of a rank if all experts are used alike.
int64_t even_rows(int64_t tokens, int64_t topk, const ExpertParallel& ranks) {
  return ranks.tp * tokens * topk;
}

// Every rank has all counts and looks at all ranks' room, so that all of them fail alike: no rank
// waits for rows that another one will not send.
void check_room(const std::vector<int32_t>& counts, int64_t room, int64_t even,
                const ExpertParallel& ranks, int64_t experts) {
  const int64_t local = experts / ranks.ep;
  int64_t most = 0, fullest = 0;
  for (int64_t ep = 0; ep < ranks.ep; ++ep) {
    int64_t rows = 0;
    for (size_t i = 0; i < counts.size(); ++i)
      if (int64_t(i) % experts / local == ep) rows += counts[i];
    if (rows > most) fullest = ep;
    most = std::max(most, rows);
  }
  const int64_t hundredths = (most * 100 + even - 1) / even;  // of an even share, rounded up
  PHX_CHECK(most <= room, "a rank's experts, from number ", fullest * local, " on, got ", most,
            " rows, but there is room for ", room, ": --moe-expert-rank-capacity-factor ",
            hundredths / 100, ".", hundredths / 10 % 10, hundredths % 10,
            " would have sufficed; without the flag there is room for the worst case");
}

ExpertInput dispatch_by_sending(const Tensor& x, const Routing& routing,
                                const ExpertParallel& ranks, const DispatchOptions& options) {
  const int64_t e = options.experts, local = local_experts(ranks, options);
  const int64_t g = ranks.group->size(), choices = routing.indices.numel();
  const Device device = x.device();
  const ExpertOrder order = order_by_expert(routing.indices, 0, e, choices);
  Tensor own = empty({1, e}, DType::i32, device), all = empty({g, e}, DType::i32, device);
  kernels::expert_counts(order.offsets, own);
  ranks.group->all_gather(own, all, compute_stream(x));
  std::vector<int32_t> counts = even_counts(choices, e, g);
  if (x.runtime().kind() != DeviceKind::meta) copy_to_host(all, counts.data());  // waits
  const Splits splits = splits_of(counts, ranks, e);

  const int64_t room = expert_rows(x.dim(0), routing.indices.dim(1), ranks, options);
  if (device.kind() != DeviceKind::meta)  // whose counts are nobody's choices
    check_room(counts, room, even_rows(x.dim(0), routing.indices.dim(1), ranks), ranks, e);
  Tensor source = empty({room}, DType::i32, device), place = empty({room}, DType::i32, device);
  Tensor offsets = empty({local + 1}, DType::i32, device);
  kernels::merge_by_expert(all, ranks.ep_rank() * local, source, place, offsets);

  // Differentiable: there, by rank; and the gradients back.
  const auto there = [=](const Tensor& sorted) {  // [n, ..] -> [room, ..]
    Shape shape = sorted.shape();
    const int64_t n = shape[0];
    shape.set(0, room);
    const Tensor received = empty(shape, sorted.dtype(), sorted.device());
    send_rows(sorted.detach(), received, splits, ranks);
    return with_backward(received, {sorted}, [=](const Tensor& dy, GradOut& grad) {
      grad.pass(0, return_rows(dy, n, splits, ranks));
    });
  };
  const auto back = [=](const Tensor& rows) {  // [room, ..] -> [n, ..]
    return with_backward(return_rows(rows.detach(), choices, splits, ranks), {rows},
                         [=](const Tensor& dy, GradOut& grad) {
                           const Tensor& out = grad.out(0);
                           send_rows(dy, out, splits, ranks);
                         });
  };
  const Tensor weights = to_expert_weights(routing.probs, order);  // [n]
  return {.rows = reorder_rows(there(to_expert_rows(x, order)), source, place),
          .weights = reorder_rows(there(weights), source, place),
          .offsets = offsets,
          .combine = [=](const Tensor& y) {
            return from_expert_rows(back(reorder_rows(y, place, source)), order);
          }};
}

}  // namespace

int64_t expert_rows(int64_t tokens, int64_t topk, const ExpertParallel& ranks,
                    const DispatchOptions& options) {
  const int64_t g = int64_t{ranks.ep} * ranks.tp;
  // A token's experts are different ones, so a rank gets a token as often as it has experts at
  // most.
  const int64_t most = g * tokens * std::min(topk, local_experts(ranks, options));
  if (!options.room) return most;
  return std::min(most, int64_t(std::ceil(*options.room * double(even_rows(tokens, topk, ranks)))));
}

ExpertInput dispatch(const Tensor& x, const Routing& routing, const ExpertParallel& ranks,
                     const DispatchOptions& options) {
  PHX_CHECK(options.experts % ranks.ep == 0, options.experts, " experts cannot be cut over ",
            ranks.ep, " ranks");
  if (ranks.group == nullptr) return dispatch_here(x, routing, options.experts);
  // With ep 1 all ranks of the group have the same experts: each needs the rows of all others, and
  // there is room for them, whatever the factor.
  return options.kind == Dispatcher::all_gather || ranks.ep == 1
             ? dispatch_by_gathering(x, routing, ranks, options)
             : dispatch_by_sending(x, routing, ranks, options);
}

}  // namespace phx
