#include "phalanx/verify/collector.h"

#include <algorithm>
#include <cmath>

#include "phalanx/base/distance.h"

namespace phx {

void Collector::add(GlobalTensors& into, const ParameterStore& store, const Tensor& flat,
                    std::span<const FlatRange> held, std::span<const FlatRange> ranges) {
  const std::vector<double> kept = to_values(flat);
  std::vector<double> values(size_t(store.all().count), std::nan(""));
  auto from = kept.begin();
  for (const FlatRange& range : held) {
    std::copy_n(from, range.count, values.begin() + range.offset);
    from += range.count;
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < store.parameters().size(); ++i)
    add(into, *store.parameters()[i], store.range_of(i), values, ranges);
}

void Collector::add(GlobalTensors& into, const Parameter& parameter, const FlatRange& local,
                    const std::vector<double>& flat, std::span<const FlatRange> ranges) {
  GlobalTensor& global = into[parameter.name()];
  std::vector<bool>& seen = seen_[&global];
  if (seen.empty()) {
    const int64_t elements = parameter.spec().global_shape.numel();
    global.values.assign(size_t(elements), std::nan(""));
    global.missing = elements;
    seen.resize(size_t(elements));
  }
  const Target target{parameter.name(), global, seen};
  for (const Piece& piece : parameter.spec().pieces) {
    for (int64_t row = 0; row < piece.rows; ++row) {
      const int64_t from =
          local.offset + (piece.local_row + row) * parameter.local_columns() + piece.local_col;
      const int64_t to = (piece.global_row + row) * parameter.columns() + piece.global_col;
      const FlatRange wanted{from, piece.cols};
      for (const FlatRange& range : intersection(ranges, {&wanted, 1}))
        for (int64_t at = range.offset; at < range.end(); ++at)
          put(target, size_t(to + at - from), flat[size_t(at)]);
    }
  }
}

void Collector::put(const Target& target, size_t at, double value) {
  double& slot = target.tensor.values[at];
  if (!target.seen[at]) {
    target.seen[at] = true;
    slot = value;
    --target.tensor.missing;
    return;
  }
  if (slot == value || (std::isnan(slot) && std::isnan(value))) return;  // replicas that agree
  outcome_.between_replicas = std::max(outcome_.between_replicas, distance(slot, value));
  if (names_.insert(target.name).second) outcome_.between_replicas_in.push_back(target.name);
}

}  // namespace phx
