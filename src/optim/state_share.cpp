#include "phalanx/optim/state_share.h"

#include <algorithm>
#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/core/philox.h"

namespace phx {

namespace {

// Of a cut: no piece is worth less, and vectors of every width stay whole.
constexpr int64_t kCut = 128;

// Which random bits a range of the store takes.
struct RandomRange {
  FlatRange range;
  uint64_t site = 0;
  int64_t first = 0;
};

std::vector<RandomRange> random_ranges(const ParameterStore& store) {
  std::vector<RandomRange> all;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    const Parameter& parameter = *store.parameters()[i];
    const int64_t width = parameter.local_columns();
    for (const Piece& box : parameter.spec().pieces) {
      PHX_ASSERT(box.cols == width, parameter.name(), " holds a box of ", box.cols, " of its ",
                 width, " columns");
      uint64_t site = site_of(parameter.name());
      if (width != parameter.columns()) site = mix64(site + uint64_t(box.global_col));
      all.push_back({{store.offset_of(i) + box.local_row * width, box.rows * width},
                     site,
                     box.global_row * width});
    }
  }
  return all;
}

std::vector<SharePiece> pieces_of(std::span<const FlatRange> ranges, const ParameterStore& store) {
  std::vector<SharePiece> all;
  int64_t at = 0;  // of the range in the states
  for (const FlatRange& range : ranges) {
    for (const FlatRun& run : store.runs()) {
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

// The same, cut where the random bits come from elsewhere. Padding, which stays zero, has none.
std::vector<SharePiece> cut_for_random_bits(std::span<const SharePiece> pieces,
                                            const ParameterStore& store) {
  const std::vector<RandomRange> random = random_ranges(store);
  std::vector<SharePiece> all;
  for (const SharePiece& piece : pieces) {
    for (const RandomRange& bits : random) {
      for (const FlatRange& part : intersection({&piece.of_store, 1}, {&bits.range, 1})) {
        SharePiece cut = piece;
        cut.of_store = part;
        cut.of_states = {piece.of_states.offset + part.offset - piece.of_store.offset, part.count};
        cut.site = bits.site;
        cut.first = bits.first + part.offset - bits.range.offset;
        all.push_back(cut);
      }
    }
  }
  return all;
}

}  // namespace

StateShare::StateShare(std::vector<FlatRange> of, const ParameterStore& store,
                       const OptimizerConfig& config, const UpdateRule& rule, Device device)
    : ranges(std::move(of)) {
  for (const FlatRange& range : ranges) size += range.count;
  const auto state = [&](DType dtype) { return empty({size}, dtype, device, Purpose::optimizer); };
  const DType weights = store.weights().dtype(), acc = acc_dtype(weights);
  bool random = false;
  for (const RuleState& of_rule : rule.states(config, acc)) {
    states.push_back(state(of_rule.dtype));
    random |= of_rule.dtype == DType::bf16;
  }
  if (weights == DType::bf16) master = state(DType::u16);
  if (weights == DType::f16) master = state(DType::f32);
  pieces = pieces_of(ranges, store);
  if (random) pieces = cut_for_random_bits(pieces, store);
}

UpdateCall StateShare::call_for(const SharePiece& piece, Tensor grad, Tensor weight, Tensor scalars,
                                const OptimizerConfig& config, uint64_t seed) const {
  UpdateCall call{.grad = std::move(grad),
                  .scalars = std::move(scalars),
                  .weight = std::move(weight),
                  .master = master.defined() ? part(master, piece.of_states) : Tensor(),
                  .states = {},
                  .config = config,
                  .decays = piece.decays,
                  .lr = piece.decoupled ? Slot::decoupled_lr : Slot::lr,
                  // A draw a parameter: its name is part of the key.
                  .seed = philox_key(seed, piece.site, /*step=*/0),
                  .first = piece.first};
  for (const Tensor& state : states) call.states.push_back(part(state, piece.of_states));
  return call;
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

SplitRanges split(const ParameterStore& store, std::span<const FlatRange> ranges, double fraction) {
  SplitRanges parts;
  const auto add = [&](const FlatRange& group) {
    const std::vector<FlatRange> of_group = intersection(ranges, {&group, 1});
    const SplitRanges more = split(of_group, fraction);
    parts.first.insert(parts.first.end(), more.first.begin(), more.first.end());
    parts.rest.insert(parts.rest.end(), more.rest.begin(), more.rest.end());
  };
  int64_t tied_end = 0;  // tied parameters come first, each in a bucket of its own
  for (const Bucket& bucket : store.buckets()) {
    if (!store.parameters()[bucket.parameters.front()]->axes().on_several_stages()) break;
    add(bucket.range);
    tied_end = bucket.range.end();
  }
  add({tied_end, store.all().count - tied_end});
  return parts;
}

}  // namespace phx
