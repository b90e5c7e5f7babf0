#include "phalanx/core/op_trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "phalanx/base/error.h"

namespace phx {

namespace {

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

std::string name_of(const OpLabel& label) {
  std::string name = label.what;
  if (*label.of != '\0') name += str_cat(" ", label.of);
  if (label.number >= 0) name += str_cat(" ", label.number);
  if (label.chunk > 0) name += str_cat(" of chunk ", label.chunk);
  return name;
}

}  // namespace

OpTrace::OpTrace(Runtime& runtime, const OpTraceOptions& options)
    : runtime_(runtime), options_(options) {
  PHX_CHECK(runtime.trace() == nullptr, "the kernels of this device are traced already");
  if (options_.times) {
    runtime.synchronize();  // so that both clocks begin at the same moment
    start_ = runtime.backend().mark_time(StreamName::compute);
  }
  host_start_ms_ = now_ms();
  runtime.set_trace(this);
}

OpTrace::~OpTrace() { runtime_.set_trace(nullptr); }

double OpTrace::host_ms() const { return now_ms() - host_start_ms_; }

std::vector<OpRecord> OpTrace::collect() {
  for (int stream = 0; stream < kNumStreams; ++stream)
    runtime_.stream(StreamName(stream)).synchronize();
  const Backend& backend = runtime_.backend();
  std::vector<OpRecord> records;
  records.reserve(pending_.size());
  for (Pending& op : pending_) {
    // A device's differences are single-precision: far from the start only short ones are exact.
    op.record.begin_ms = backend.milliseconds(start_, op.begin);
    op.record.end_ms = op.record.begin_ms + backend.milliseconds(op.begin, op.end);
    records.push_back(std::move(op.record));
  }
  pending_.clear();
  return records;
}

void OpScope::begin(const OpLabel& label) {
  phase_ = label.kind == OpKind::phase;
  if (trace_->inside_ && !phase_) {
    trace_ = nullptr;
    return;
  }
  Runtime& runtime = trace_->runtime_;
  std::string name = name_of(label);
  if (trace_->options_.ranges) runtime.backend().push_range(name.c_str());
  trace_->inside_ = trace_->inside_ || !phase_;
  traced_ = trace_->options_.times;
  if (!traced_) return;
  before_ = runtime.cost();
  index_ = trace_->pending_.size();
  trace_->pending_.push_back({{.name = std::move(name),
                               .cost = {},
                               .begin_ms = 0,
                               .end_ms = 0,
                               .kind = label.kind,
                               .stream = label.stream,
                               .host_begin_ms = trace_->host_ms(),
                               .host_end_ms = 0},
                              runtime.backend().mark_time(label.stream),
                              {}});
}

void OpScope::end() noexcept {
  Runtime& runtime = trace_->runtime_;
  if (!phase_) trace_->inside_ = false;
  if (trace_->options_.ranges) runtime.backend().pop_range();
  if (!traced_) return;
  OpTrace::Pending& op = trace_->pending_[index_];
  op.end = op.begin;
  try {
    op.end = runtime.backend().mark_time(op.record.stream);
  } catch (const Error&) {
    // The device failed, which the kernel's own check says better: the piece has no length.
  }
  const Cost& after = runtime.cost();
  op.record.cost = {after.flops - before_.flops, after.bytes - before_.bytes};
  op.record.host_end_ms = trace_->host_ms();
}

std::vector<OpTotal> totals_of(const std::vector<OpRecord>& records) {
  std::map<std::tuple<std::string, int64_t, int64_t>, OpTotal> by_kind;
  for (const OpRecord& op : records) {
    if (op.kind == OpKind::phase) continue;
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
