#include "phalanx/parallel/data/data_parallel.h"

#include <algorithm>
#include <utility>

namespace phx {

namespace {

constexpr Grid kGrids[] = {Grid::dense, Grid::expert};

}  // namespace

DataParallel::DataParallel(ParameterStore& store, const DataRanks& ranks,
                           const DataParallelOptions& options)
    : store_(store), ranks_(ranks), options_(options) {
  const auto& buckets = store.buckets();
  for (const Bucket& bucket : buckets) {
    PHX_ASSERT(!cut(bucket.grid) ||
                   bucket.range.count == bucket.piece.count * ranks.shards.size(bucket.grid),
               "a bucket of ", bucket.range.count, " elements in pieces of ", bucket.piece.count,
               " for ", ranks.shards.size(bucket.grid), " ranks");
    if (sharded()) owned_.push_back(bucket.owned);
    owners_cut_ = owners_cut_ || bucket.owned != bucket.piece;
  }
  if (!sharded()) owned_ = {store.all()};
  gathers_.resize(buckets.size());
  reduced_.resize(buckets.size());
  rounds_.resize(buckets.size());
  bucket_passed_.resize(buckets.size());
  uses_.resize(store.parameters().size());
  uses_expected_.resize(uses_.size());
  acquired_.resize(uses_.size());
  if (alone()) return;
  if (options.sharding >= Sharding::optim_grads) gradients_.emplace(store, ranks.shards);
  if (options.sharding == Sharding::optim_grads_params)
    weights_.emplace(store, ranks.shards, options.gather);
  for (size_t i = 0; i < store.parameters().size(); ++i) store.parameters()[i]->set_door(this, i);
}

bool DataParallel::alone() const {
  return std::ranges::all_of(kGrids, [&](Grid grid) {
    return ranks_.shards.size(grid) == 1 && ranks_.copies.size(grid) == 1;
  });
}

Division DataParallel::division_of_weights(Grid grid) const {
  return weights_ && cut(grid) ? Division::in_copies : Division::none;
}

Division DataParallel::division_of_state(Grid grid) const {
  if (owners_cut_ && ranks_.copies.size(grid) > 1) return Division::among_all;
  return cut(grid) ? Division::in_copies : Division::none;
}

DataParallel::~DataParallel() {
  if (alone()) return;
  for (Parameter* parameter : store_.parameters()) parameter->set_door(nullptr, 0);
}

void DataParallel::begin_step(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  const auto& buckets = store_.buckets();
  uses_.assign(store_.parameters().size(), 0);
  reduced_.assign(buckets.size(), 0);
  rounds_.assign(buckets.size(), 0);
  pending_.assign(buckets.size(), 0);
  for (size_t i = 0; i < buckets.size(); ++i) begin_round(i);
  if (gradients_) gradients_->begin_step();
  if (weights_) weights_->begin(str_cat("train of ", micro_batches));
}

// How many of the bucket's parameters are still to have their uses: with sharded gradients those of
// the next micro-batch, else of the whole step.
void DataParallel::begin_round(size_t bucket) {
  pending_[bucket] = 0;
  const int64_t until = cut_gradients(bucket) ? rounds_[bucket] + 1 : micro_batches_;
  for (const size_t parameter : store_.buckets()[bucket].parameters)
    if (uses_[parameter] < uses_expected_[parameter] * until) ++pending_[bucket];
}

void DataParallel::acquire(size_t parameter, WeightUse use) {
  const size_t bucket = store_.bucket_of(parameter);
  if (cut_weights(parameter)) {
    weights_->acquire(bucket);  // behind gathers among copies, on the same stream
  } else if (options_.overlap_gather) {
    wait_for_bucket(bucket);
  }
  if (use == WeightUse::forward && in_forward_) ++acquired_[parameter];
}

void DataParallel::begin_forward() {
  in_forward_ = !learned_;
  if (in_forward_) acquired_.assign(acquired_.size(), 0);
}

// A chunk's first forward says what its backward will be.
void DataParallel::end_forward(int chunk) {
  if (!std::exchange(in_forward_, false) || !chunks_passed_.insert(chunk).second) return;
  for (size_t i = 0; i < acquired_.size(); ++i) {
    uses_expected_[i] += acquired_[i];
    if (acquired_[i] > 0) bucket_passed_[store_.bucket_of(i)] = 1;
  }
  for (size_t i = 0; i < pending_.size(); ++i) begin_round(i);
}

bool DataParallel::knows_uses(size_t bucket) const {
  return learned_ || (cut_gradients(bucket) && bucket_passed_[bucket] != 0);
}

void DataParallel::release(size_t parameter) {
  if (cut_weights(parameter)) weights_->release(store_.bucket_of(parameter));
}

void DataParallel::open_gradient(size_t parameter) {
  const size_t bucket = store_.bucket_of(parameter);
  if (cut_gradients(bucket)) gradients_->open(bucket);
}

void DataParallel::use_done(size_t parameter) {
  const size_t bucket = store_.bucket_of(parameter);
  PHX_CHECK(reduced_[bucket] == 0, "a gradient of ", store_.parameters()[parameter]->name(),
            " came after the ranks had summed its bucket: use ", uses_[parameter] + 1,
            " of it in a step of ", micro_batches_, " micro-batches",
            learned_
                ? str_cat(", where ", uses_expected_[parameter], " a micro-batch were expected")
                : "");
  ++uses_[parameter];
  if (knows_uses(bucket)) count_use(parameter);
}

void DataParallel::count_use(size_t parameter) {
  const size_t bucket = store_.bucket_of(parameter);
  const bool by_micro_batch = cut_gradients(bucket);
  const int64_t until = by_micro_batch ? rounds_[bucket] + 1 : micro_batches_;
  if (uses_[parameter] != uses_expected_[parameter] * until) return;
  if (--pending_[bucket] > 0) return;
  if (!by_micro_batch) return reduce(bucket);
  gradients_->reduce(bucket);
  if (++rounds_[bucket] < micro_batches_)
    begin_round(bucket);
  else if (learned_)
    reduced_[bucket] = 1;
}

// Every parameter was used as often as in the first step. More uses than that are found here if
// the bucket still waited for another parameter.
void DataParallel::check_uses() const {
  if (!learned_) return;
  for (size_t i = 0; i < uses_expected_.size(); ++i)
    PHX_CHECK(uses_[i] == uses_expected_[i] * micro_batches_, "parameter ",
              store_.parameters()[i]->name(), " was used ", uses_[i], " times in a step of ",
              micro_batches_, " micro-batches, but the first step used it ", uses_expected_[i],
              " times in each; --overlap-grad-reduce and sharded gradients need steps that use "
              "their weights alike");
}

void DataParallel::learn_uses() {
  std::vector<int64_t> learned;
  for (size_t i = 0; i < uses_.size(); ++i) {
    PHX_CHECK(uses_[i] % micro_batches_ == 0, "parameter ", store_.parameters()[i]->name(),
              " was used ", uses_[i], " times in ", micro_batches_,
              " micro-batches, so not equally often in each; --overlap-grad-reduce and sharded "
              "gradients need that, because they must know a weight's last gradient");
    learned.push_back(uses_[i] / micro_batches_);
  }
  uses_expected_ = std::move(learned);
  learned_ = true;
}

// For the last time in this step.
void DataParallel::reduce(size_t bucket) {
  reduced_[bucket] = 1;
  if (cut_gradients(bucket)) return gradients_->reduce(bucket);
  const Bucket& it = store_.buckets()[bucket];
  for (const size_t parameter : it.parameters) store_.parameters()[parameter]->finish_step();
  Communicator* ranks = ranks_.shards.of(it.grid);
  if (ranks == nullptr) return;
  Runtime& runtime = store_.gradients().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  const Tensor all = store_.gradients(it.range);
  if (cut(it.grid)) {
    ranks->reduce_scatter(all, store_.gradients(it.piece), lane);
  } else {
    ranks->all_reduce(all, lane);
  }
}

// Of shards that are kept several times.
void DataParallel::add_up_copies() {
  Runtime& runtime = store_.gradients().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  for (const Bucket& bucket : store_.buckets()) {
    Communicator* copies = ranks_.copies.of(bucket.grid);
    if (copies == nullptr) continue;
    if (owners_cut_) {
      copies->reduce_scatter(store_.gradients(bucket.piece), store_.gradients(bucket.owned), lane);
    } else {
      copies->all_reduce(store_.gradients(bucket.piece), lane);
    }
  }
}

void DataParallel::finish_step() {
  if (alone()) return store_.finish_step();
  check_uses();
  for (size_t i = 0; i < reduced_.size(); ++i)
    if (reduced_[i] == 0) reduce(i);
  if (gradients_) gradients_->finish_step();
  if (weights_) weights_->end();
  add_up_copies();
  Runtime& runtime = store_.gradients().runtime();
  runtime.stream(StreamName::compute).wait(runtime.stream(StreamName::dp).record());
  if ((options_.overlap_reduce || gradients_) && !learned_) learn_uses();
}

void DataParallel::abandon_step() {
  if (gradients_) gradients_->begin_step();
  if (weights_) weights_->abandon();
}

void DataParallel::begin_forwards(const std::string& kind) {
  if (weights_) weights_->begin(kind);
}

void DataParallel::end_forwards() {
  if (weights_) weights_->end();
}

void DataParallel::gather_weights() {
  if (!sharded()) return;
  Runtime& runtime = store_.weights().runtime();
  const Stream lane = runtime.stream(StreamName::dp);
  lane.wait(runtime.stream(StreamName::compute).record());
  const auto gather = [&](size_t bucket) {
    const Bucket& it = store_.buckets()[bucket];
    const bool among_copies = it.owned != it.piece, in_shards = cut(it.grid) && !weights_;
    if (among_copies)
      ranks_.copies.of(it.grid)->all_gather(store_.weights(it.owned), store_.weights(it.piece),
                                            lane);
    if (in_shards)
      ranks_.shards.of(it.grid)->all_gather(store_.weights(it.piece), store_.weights(it.range),
                                            lane);
    if (among_copies || in_shards) gathers_[bucket] = {.waiting = true, .done = lane.record()};
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
