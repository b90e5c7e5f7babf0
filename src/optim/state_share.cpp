#include "optim/state_share.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace phx {

namespace {

// Of a cut: no piece is worth less, and vectors of every width stay whole.
constexpr int64_t kCut = 128;

}  // namespace

StateShare::StateShare(std::vector<FlatRange> of, const ParameterStore& store,
                       const OptimizerConfig& config, Device device)
    : ranges(std::move(of)) {
  for (const FlatRange& range : ranges) size += range.count;
  const auto state = [&](DType dtype) { return empty({size}, dtype, device, Purpose::optimizer); };
  const DType weights = store.weights().dtype(), acc = acc_dtype(weights);
  const auto moment = [&](StateDType type) {
    return state(type == StateDType::bf16 ? DType::bf16 : acc);
  };
  exp_avg = moment(config.exp_avg_dtype);
  exp_avg_sq = moment(config.exp_avg_sq_dtype);
  if (weights == DType::bf16) master = state(DType::u16);
  if (weights == DType::f16) master = state(DType::f32);
}

std::vector<SharePiece> StateShare::pieces(std::span<const FlatRun> runs) const {
  std::vector<SharePiece> all;
  int64_t at = 0;  // of the range in the states
  for (const FlatRange& range : ranges) {
    for (const FlatRun& run : runs) {
      const FlatRange of_run{run.offset, run.count};
      for (const FlatRange& part : intersection({&range, 1}, {&of_run, 1}))
        all.push_back({.of_store = part,
                       .of_states = {at + part.offset - range.offset, part.count},
                       .decays = run.decays,
                       .decoupled = run.decoupled});
    }
    at += range.count;
  }
  return all;
}

SplitRanges split(std::span<const FlatRange> ranges, double fraction) {
  int64_t total = 0;
  for (const FlatRange& range : ranges) total += range.count;
  int64_t left =
      fraction >= 1.0
          ? total
          : std::min(total, round_up(int64_t(std::llround(double(total) * fraction)), kCut));
  SplitRanges parts;
  for (const FlatRange& range : ranges) {
    const int64_t count = std::min(left, range.count);
    if (count > 0) parts.first.push_back({range.offset, count});
    if (count < range.count) parts.rest.push_back({range.offset + count, range.count - count});
    left -= count;
  }
  return parts;
}

}  // namespace phx
