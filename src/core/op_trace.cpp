#include "core/op_trace.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace phx {

OpTrace::OpTrace(Runtime& runtime) : runtime_(runtime), start_(runtime.backend().mark_time()) {
  PHX_CHECK(runtime.trace() == nullptr, "the kernels of this device are traced already");
  runtime.set_trace(this);
}

OpTrace::~OpTrace() { runtime_.set_trace(nullptr); }

std::vector<OpRecord> OpTrace::collect() {
  runtime_.synchronize();
  const Backend& backend = runtime_.backend();
  std::vector<OpRecord> records;
  records.reserve(pending_.size());
  for (const Pending& op : pending_) {
    const Cost cost{op.after.flops - op.before.flops, op.after.bytes - op.before.bytes};
    records.push_back({op.name, cost, backend.milliseconds(start_, op.begin),
                       backend.milliseconds(start_, op.end)});
  }
  pending_.clear();
  return records;
}

void OpScope::begin(const char* name) {
  if (trace_->open_) {
    trace_ = nullptr;
    return;
  }
  trace_->open_ = true;
  Runtime& runtime = trace_->runtime_;
  trace_->pending_.push_back({name, runtime.cost(), {}, runtime.backend().mark_time(), {}});
}

void OpScope::end() {
  OpTrace::Pending& op = trace_->pending_.back();
  op.end = trace_->runtime_.backend().mark_time();
  op.after = trace_->runtime_.cost();
  trace_->open_ = false;
}

std::vector<OpTotal> totals_of(const std::vector<OpRecord>& records) {
  std::map<std::tuple<std::string, int64_t, int64_t>, OpTotal> by_kind;
  for (const OpRecord& op : records) {
    OpTotal& total = by_kind[{op.name, op.cost.flops, op.cost.bytes}];
    total.name = op.name;
    total.cost = op.cost;
    ++total.count;
    total.ms += op.end_ms - op.begin_ms;
  }
  std::vector<OpTotal> totals;
  for (auto& [key, total] : by_kind) totals.push_back(std::move(total));
  std::sort(totals.begin(), totals.end(),
            [](const OpTotal& a, const OpTotal& b) { return a.ms > b.ms; });
  return totals;
}

}  // namespace phx
