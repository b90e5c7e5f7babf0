#include "phalanx/parallel/data/sharded_gradients.h"

#include "phalanx/base/error.h"
#include "phalanx/core/accumulate.h"

namespace phx {

ShardedGradients::ShardedGradients(ParameterStore& store, const GridRanks& ranks)
    : store_(store), ranks_(ranks), units_(store.buckets().size()) {}

void ShardedGradients::begin_step() {
  for (size_t i = 0; i < units_.size(); ++i) {  // memory of a step that did not end
    store_.gradients().runtime().stream(StreamName::compute).wait(units_[i].summed);
    if (units_[i].open || units_[i].leaving) store_.gradients_of(i).storage()->give_back();
    units_[i] = {};
  }
}

// Parameters lie at aligned places: what is between them takes part in sums and norms.
void ShardedGradients::clear_padding(size_t unit) {
  const Bucket& bucket = store_.buckets()[unit];
  const Tensor& all = store_.gradients_of(unit);
  int64_t at = 0;  // up to here there is a parameter
  const auto clear_up_to = [&](int64_t end) {
    if (end == at) return;
    Tensor gap = all.rows(at, end - at);
    set_zero(gap);
  };
  for (const size_t parameter : bucket.parameters) {
    const FlatRange range = store_.range_of(parameter);
    clear_up_to(range.offset - bucket.range.offset);
    at = range.end() - bucket.range.offset;
  }
  clear_up_to(bucket.range.count);
}

void ShardedGradients::open(size_t unit) {
  if (units_[unit].open) return;
  if (units_[unit].leaving) settle(unit);
  store_.gradients_of(unit).storage()->take_again();
  units_[unit].open = true;
  clear_padding(unit);
  for (const size_t parameter : store_.buckets()[unit].parameters)
    store_.parameters()[parameter]->begin_step();
}

void ShardedGradients::reduce(size_t unit) {
  if (!units_[unit].open) return;
  for (size_t i = 0; i < units_.size(); ++i)
    if (units_[i].leaving) settle(i);
  const Bucket& bucket = store_.buckets()[unit];
  for (const size_t parameter : bucket.parameters) store_.parameters()[parameter]->finish_step();
  units_[unit].open = false;
  units_[unit].leaving = true;
  ++reductions_;
  Runtime& runtime = store_.gradients().runtime();
  const Tensor& all = store_.gradients_of(unit);
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  ranks_.of(bucket.grid)
      ->reduce_scatter(all, all.rows(bucket.piece.offset - bucket.range.offset, bucket.piece.count),
                       lane);
  units_[unit].summed = lane.record();
}

// Adds the sums to the rank's piece, and gives the unit's memory back.
void ShardedGradients::settle(size_t unit) {
  const Bucket& bucket = store_.buckets()[unit];
  store_.gradients().runtime().stream(StreamName::compute).wait(units_[unit].summed);
  const Tensor sums =
      store_.gradients_of(unit).rows(bucket.piece.offset - bucket.range.offset, bucket.piece.count);
  add_to_sink(sums, {store_.gradients(bucket.piece), units_[unit].kept ? 1.f : 0.f});
  units_[unit].kept = true;
  units_[unit].leaving = false;
  units_[unit].summed = {};
  store_.gradients_of(unit).storage()->give_back();
}

void ShardedGradients::finish_step() {
  for (size_t i = 0; i < units_.size(); ++i) reduce(i);
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i].leaving) settle(i);
    if (units_[i].kept || !store_.buckets()[i].is_cut()) continue;
    Tensor piece = store_.gradients(store_.buckets()[i].piece);
    set_zero(piece);
  }
}

}  // namespace phx
