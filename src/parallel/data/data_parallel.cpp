#include "phalanx/parallel/data/data_parallel.h"

#include <utility>

namespace phx {

DataParallel::DataParallel(ParameterStore& store, const DataRanks& ranks,
                           const DataParallelOptions& options)
    : store_(store), ranks_(ranks), options_(options) {
  const auto& buckets = store.buckets();
  bucket_of_.resize(store.parameters().size());
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const size_t parameter : buckets[i].parameters) bucket_of_[parameter] = i;
    if (sharded()) owned_.push_back(piece_of(buckets[i]));
  }
  if (!sharded()) owned_ = {store.all()};
  gathers_.resize(buckets.size());
  reduced_.resize(buckets.size());
  uses_.resize(store.parameters().size());
  if (alone()) return;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    Parameter& parameter = *store.parameters()[i];
    parameter.on_use_done([this, i](Parameter&) { use_done(i); });
    if (sharded(parameter.axes().grid) && options.overlap_gather)
      parameter.before_use([this, bucket = bucket_of_[i]] { wait_for_bucket(bucket); });
  }
}

FlatRange DataParallel::piece_of(const Bucket& bucket) const {
  if (!sharded(bucket.grid)) return bucket.range;
  const Communicator& ranks = *ranks_.of(bucket.grid);
  PHX_ASSERT(bucket.range.count % ranks.size() == 0, "a bucket of ", bucket.range.count,
             " elements for ", ranks.size(), " ranks");
  const int64_t count = bucket.range.count / ranks.size();
  return {bucket.range.offset + ranks.rank() * count, count};
}

DataParallel::~DataParallel() {
  for (Parameter* parameter : store_.parameters()) {
    parameter->on_use_done({});
    parameter->before_use({});
  }
}

void DataParallel::begin_step(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  const auto& buckets = store_.buckets();
  uses_.assign(store_.parameters().size(), 0);
  reduced_.assign(buckets.size(), 0);
  pending_.assign(buckets.size(), 0);
  for (size_t i = 0; i < uses_expected_.size(); ++i)
    if (uses_expected_[i] > 0) ++pending_[bucket_of_[i]];
}

void DataParallel::use_done(size_t parameter) {
  const size_t bucket = bucket_of_[parameter];
  PHX_CHECK(reduced_[bucket] == 0, "a gradient of ", store_.parameters()[parameter]->name(),
            " came after the ranks had summed its bucket: use ", uses_[parameter] + 1,
            " of it in a step of ", micro_batches_, " micro-batches",
            uses_expected_.empty()
                ? ""
                : str_cat(", where ", uses_expected_[parameter], " a micro-batch were expected"));
  ++uses_[parameter];
  if (uses_expected_.empty() || uses_[parameter] != uses_expected_[parameter] * micro_batches_)
    return;
  if (--pending_[bucket] == 0) reduce(bucket);
}

// Every parameter was used as often as in the first step. More uses than that are found here if
// the bucket still waited for another parameter.
void DataParallel::check_uses() const {
  for (size_t i = 0; i < uses_expected_.size(); ++i)
    PHX_CHECK(uses_[i] == uses_expected_[i] * micro_batches_, "parameter ",
              store_.parameters()[i]->name(), " was used ", uses_[i], " times in a step of ",
              micro_batches_, " micro-batches, but the first step used it ", uses_expected_[i],
              " times in each; --overlap-grad-reduce needs steps that use their weights alike");
}

void DataParallel::learn_uses() {
  std::vector<int64_t> learned;
  for (size_t i = 0; i < uses_.size(); ++i) {
    PHX_CHECK(uses_[i] % micro_batches_ == 0, "parameter ", store_.parameters()[i]->name(),
              " was used ", uses_[i], " times in ", micro_batches_,
              " micro-batches, so not equally often in each; --overlap-grad-reduce needs that, "
              "because it must know a weight's last gradient");
    learned.push_back(uses_[i] / micro_batches_);
  }
  uses_expected_ = std::move(learned);
}

void DataParallel::reduce(size_t bucket) {
  reduced_[bucket] = 1;
  const Bucket& it = store_.buckets()[bucket];
  for (const size_t parameter : it.parameters) store_.parameters()[parameter]->finish_step();
  Communicator* ranks = ranks_.of(it.grid);
  if (ranks == nullptr) return;
  Runtime& runtime = store_.gradients().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  const Tensor all = part(store_.gradients(), it.range);
  if (sharded(it.grid)) {
    ranks->reduce_scatter(all, part(store_.gradients(), piece_of(it)), lane);
  } else {
    ranks->all_reduce(all, lane);
  }
}

void DataParallel::finish_step() {
  store_.finish_step();
  if (alone()) return;
  check_uses();
  for (size_t i = 0; i < reduced_.size(); ++i)
    if (reduced_[i] == 0) reduce(i);
  Runtime& runtime = store_.gradients().runtime();
  runtime.stream(StreamName::compute).wait(runtime.stream(StreamName::dp).record());
  if (options_.overlap_reduce && uses_expected_.empty()) learn_uses();
}

void DataParallel::gather_weights() {
  if (!sharded()) return;
  Runtime& runtime = store_.weights().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  const auto gather = [&](size_t bucket) {
    const Bucket& it = store_.buckets()[bucket];
    if (!sharded(it.grid)) return;
    ranks_.of(it.grid)->all_gather(part(store_.weights(), piece_of(it)),
                                   part(store_.weights(), it.range), lane);
    gathers_[bucket] = {.waiting = true, .done = lane.record()};
  };
  // In the order of the next forward: norms and biases, which the first layer needs already, then
  // the matrices layer by layer.
  for (const bool vectors : {true, false})
    for (size_t i = 0; i < store_.buckets().size(); ++i)
      if (store_.buckets()[i].vectors == vectors) gather(i);
  if (!options_.overlap_gather) wait_for_weights();
}

void DataParallel::wait_for_bucket(size_t bucket) {
  if (!gathers_[bucket].waiting) return;
  store_.weights().runtime().stream(StreamName::compute).wait(gathers_[bucket].done);
  gathers_[bucket] = {};
}

void DataParallel::wait_for_weights() {
  for (size_t i = 0; i < gathers_.size(); ++i) wait_for_bucket(i);
}

}  // namespace phx
