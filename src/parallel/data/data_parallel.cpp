#include "parallel/data/data_parallel.h"

namespace phx {

namespace {

FlatRange piece_of(const FlatRange& bucket, int rank, int size) {
  const int64_t count = bucket.count / size;
  return {bucket.offset + rank * count, count};
}

}  // namespace

DataParallel::DataParallel(ParameterStore& store, Communicator* ranks,
                           const DataParallelOptions& options)
    : store_(store), ranks_(ranks), options_(options) {
  const auto& buckets = store.buckets();
  bucket_of_.resize(store.parameters().size());
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const size_t parameter : buckets[i].parameters) bucket_of_[parameter] = i;
    if (sharded()) {
      PHX_ASSERT(buckets[i].range.count % size() == 0, "a bucket of ", buckets[i].range.count,
                 " elements for ", size(), " ranks");
      owned_.push_back(piece_of(buckets[i].range, rank(), size()));
    }
  }
  if (!sharded()) owned_ = {store.all()};
  gathers_.resize(buckets.size());
  if (size() == 1) return;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    Parameter& parameter = *store.parameters()[i];
    if (options.overlap_reduce) parameter.on_use_done([this, i](Parameter&) { use_done(i); });
    if (sharded() && options.overlap_gather)
      parameter.before_use([this, bucket = bucket_of_[i]] { wait_for_bucket(bucket); });
  }
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
  ++uses_[parameter];
  if (uses_expected_.empty() || uses_[parameter] != uses_expected_[parameter] * micro_batches_)
    return;
  const size_t bucket = bucket_of_[parameter];
  if (--pending_[bucket] == 0) reduce(bucket);
}

void DataParallel::reduce(size_t bucket) {
  reduced_[bucket] = 1;
  const Bucket& it = store_.buckets()[bucket];
  for (const size_t parameter : it.parameters) store_.parameters()[parameter]->finish_step();
  Runtime& runtime = store_.gradients().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  const Tensor all = part(store_.gradients(), it.range);
  if (sharded()) {
    const Tensor own = part(store_.gradients(), piece_of(it.range, rank(), size()));
    ranks_->reduce_scatter(all, own, lane);
  } else {
    ranks_->all_reduce(all, lane);
  }
}

void DataParallel::finish_step() {
  store_.finish_step();
  if (size() == 1) return;
  for (size_t i = 0; i < reduced_.size(); ++i)
    if (reduced_[i] == 0) reduce(i);
  Runtime& runtime = store_.gradients().runtime();
  runtime.stream(StreamName::compute).wait(runtime.stream(StreamName::dp).record());
  if (!options_.overlap_reduce || !uses_expected_.empty()) return;
  uses_expected_ = uses_;
  for (int64_t& uses : uses_expected_) uses /= micro_batches_;
}

void DataParallel::gather_weights() {
  if (!sharded()) return;
  Runtime& runtime = store_.weights().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  const auto gather = [&](size_t bucket) {
    const FlatRange& range = store_.buckets()[bucket].range;
    ranks_->all_gather(part(store_.weights(), piece_of(range, rank(), size())),
                       part(store_.weights(), range), lane);
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
