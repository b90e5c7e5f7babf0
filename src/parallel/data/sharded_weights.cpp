#include "phalanx/parallel/data/sharded_weights.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/core/op_trace.h"

namespace phx {

namespace {

// For whoever traces a step: when a unit comes into use, and when it is gathered.
OpLabel mark(const char* what, size_t unit, StreamName stream) {
  return {.what = what, .number = int(unit), .kind = OpKind::phase, .stream = stream};
}

}  // namespace

ShardedWeights::ShardedWeights(ParameterStore& store, const GridRanks& ranks,
                               const GatherOptions& options)
    : store_(store), ranks_(ranks), options_(options), units_(store.buckets().size()) {}

ShardedWeights::~ShardedWeights() = default;

void ShardedWeights::begin(const std::string& kind) {
  abandon();
  kind_ = kind;
  running_ = true;
  const auto known = orders_.find(kind);
  order_ = known == orders_.end() ? nullptr : &known->second;
  at_ = 0;
}

void ShardedWeights::end() {
  if (!running_) return;
  for (size_t i = 0; i < units_.size(); ++i)
    PHX_ASSERT(units_[i].users == 0, "a step ends while a weight of unit ", i, " is in use");
  orders_[kind_] = std::move(noted_);
  abandon();
}

void ShardedWeights::abandon() {
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i].here) give_back(i);
    units_[i] = {};
  }
  noted_.clear();
  order_ = nullptr;
  running_ = false;
}

void ShardedWeights::acquire(size_t unit) {
  if (noted_.empty() || noted_.back() != unit) enter(unit);
  if (!units_[unit].here) gather(unit);
  wait_for(unit);
  ++units_[unit].users;
}

void ShardedWeights::release(size_t unit) {
  // Memory is given back when another unit comes: most weights of a unit are used one by one.
  if (units_[unit].users > 0) --units_[unit].users;
}

// Another unit than the last one comes into use.
void ShardedWeights::enter(size_t unit) {
  if (order_ != nullptr) {
    at_ = noted_.size();
    if (at_ >= order_->size() || (*order_)[at_] != unit) order_ = nullptr;
  }
  noted_.push_back(unit);
  if (!running_ && noted_.size() > 2) noted_.erase(noted_.begin());
  const OpScope traced(runtime(), mark("unit", unit, StreamName::compute));
  const std::vector<size_t> next = ahead();
  make_room(next);
  if (!units_[unit].here) gather(unit);
  for (const size_t later : next)
    if (!units_[later].here) gather(later);
}

// The units that are used behind the present one and are to be here already.
std::vector<size_t> ShardedWeights::ahead() const {
  std::vector<size_t> next;
  if (order_ == nullptr) return next;
  int64_t left = options_.ahead_elements;
  for (size_t i = at_ + 1; i < order_->size(); ++i) {
    const size_t unit = (*order_)[i];
    if (unit == (*order_)[at_] || std::ranges::find(next, unit) != next.end()) continue;
    left -= elements(unit);
    if (!next.empty() && left < 0) break;
    next.push_back(unit);
  }
  return next;
}

bool ShardedWeights::stays(size_t unit, const std::vector<size_t>& next) const {
  if (units_[unit].users > 0) return true;
  if (std::ranges::find(next, unit) != next.end()) return true;
  if (order_ == nullptr) {  // the present one and the one before it
    if (options_.keep_between_uses) return true;
    const size_t last = noted_.size();
    return noted_[last - 1] == unit || (last > 1 && noted_[last - 2] == unit);
  }
  if (unit == (*order_)[at_]) return true;
  return options_.keep_between_uses &&
         std::find(order_->begin() + int64_t(at_), order_->end(), unit) != order_->end();
}

void ShardedWeights::make_room(const std::vector<size_t>& next) {
  for (size_t i = 0; i < units_.size(); ++i)
    if (units_[i].here && !stays(i, next)) give_back(i);
}

void ShardedWeights::gather(size_t unit) {
  const Bucket& bucket = store_.buckets()[unit];
  const Tensor& whole = store_.weights_of(unit);
  const Tensor own = store_.weights(bucket.piece);
  whole.storage()->take_again();
  units_[unit].here = true;
  ++gathers_;
  // The memory may have been another tensor's, which is read until the compute stream is here.
  const OpScope traced(runtime(), mark("gather of unit", unit, StreamName::dp));
  const Stream lane = runtime().stream(StreamName::dp);
  lane.wait(runtime().stream(StreamName::compute).record());
  ranks_.of(bucket.grid)->all_gather(own, whole, lane);
  units_[unit].on_its_way = true;
  units_[unit].arrived = lane.record();
}

void ShardedWeights::wait_for(size_t unit) {
  if (!units_[unit].on_its_way) return;
  runtime().stream(StreamName::compute).wait(units_[unit].arrived);
  units_[unit].on_its_way = false;
  units_[unit].arrived = {};
}

void ShardedWeights::give_back(size_t unit) {
  wait_for(unit);  // what has memory next writes to it behind the gather
  store_.weights_of(unit).storage()->give_back();
  units_[unit].here = false;
}

}  // namespace phx
