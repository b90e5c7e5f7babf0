#include "core/memory.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/math.h"
#include "core/pack_intervals.h"

namespace phx {

const char* name(Purpose purpose) {
  static constexpr std::array<const char*, kNumPurposes> kNames = {
      "weights", "gradients", "optimizer", "activations", "workspace", "communication", "runtime"};
  return kNames[static_cast<size_t>(purpose)];
}

namespace {

// Cached blocks come in classes, an eighth of a power of two apart, so that requests of nearly the
// same size share blocks; at most 12.5% is lost, and only in `reserved`, never in what is charged.
int64_t size_class(int64_t bytes) {
  if (bytes <= 8 * Allocator::kGranule) return bytes;
  const int64_t step = int64_t(std::bit_floor(uint64_t(bytes))) / 8;
  return round_up(bytes, std::max(step, Allocator::kGranule));
}

int64_t sum(const BytesByPurpose& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

}  // namespace

Allocator::Allocator(std::unique_ptr<MemorySource> source, std::string device_name)
    : source_(std::move(source)), device_name_(std::move(device_name)) {}

Allocator::~Allocator() {
  for (auto& [kind, plan] : plans_) {
    if (plan.arena != nullptr) source_->free(plan.arena, plan.arena_bytes);
  }
  release_cache();
}

void Allocator::charge(Purpose purpose, int64_t bytes) {
  const auto at = static_cast<size_t>(purpose);
  report_.live[at] += bytes;
  report_.peak[at] = std::max(report_.peak[at], report_.live[at]);
  if (bytes > 0) {
    const int64_t total = sum(report_.live);
    if (total > report_.peak_total) {
      report_.peak_total = total;
      report_.at_peak = report_.live;
    }
  }
}

void* Allocator::from_source(int64_t bytes) {
  void* data = source_->allocate(bytes);
  if (data == nullptr) {
    release_cache();
    data = source_->allocate(bytes);
  }
  if (data != nullptr) {
    ++report_.source_allocations;
    report_.reserved += bytes;
  }
  return data;
}

Block Allocator::from_cache(int64_t bytes, Purpose purpose, uint8_t stream) {
  Block block{.bytes = bytes, .reserved = size_class(bytes), .purpose = purpose, .stream = stream};
  auto& bin = free_[{block.reserved, stream}];
  if (!bin.empty()) {
    block.data = bin.back();
    bin.pop_back();
  } else {
    block.data = from_source(block.reserved);
    if (block.data == nullptr) out_of_memory(bytes, purpose);
  }
  return block;
}

Block Allocator::allocate(int64_t bytes, Purpose purpose, uint8_t stream) {
  bytes = std::max(kGranule, round_up(bytes, kGranule));
  Block block;
  if (plan_ == nullptr) {
    block = from_cache(bytes, purpose, stream);
  } else {
    const int64_t ordinal = next_ordinal_++;
    note_event({.is_free = false, .stream = stream, .value = bytes});
    const bool replay = plan_->arena != nullptr && !diverged_;
    if (replay && plan_->offsets[ordinal] >= 0) {
      block = {.data = static_cast<char*>(plan_->arena) + plan_->offsets[ordinal],
               .bytes = bytes,
               .purpose = purpose,
               .stream = stream};
      ++plan_->live;
    } else {
      block = from_cache(bytes, purpose, stream);
    }
    block.ordinal = ordinal;
    block.step = step_;
  }
  charge(purpose, bytes);
  return block;
}

void Allocator::release(const Block& block) {
  charge(block.purpose, -block.bytes);
  if (plan_ != nullptr && block.step == step_)
    note_event({.is_free = true, .stream = block.stream, .value = block.ordinal});
  if (block.reserved > 0) {
    free_[{block.reserved, block.stream}].push_back(block.data);
    return;
  }
  for (auto& [kind, plan] : plans_) {  // one or two kinds exist
    const char* begin = static_cast<char*>(plan.arena);
    if (block.data < begin || block.data >= begin + plan.arena_bytes) continue;
    if (--plan.live == 0 && plan.offsets.empty()) drop_arena(plan);
    return;
  }
}

void Allocator::note_event(const Event& event) {
  if (plan_->arena == nullptr || diverged_) {
    recorded_.push_back(event);
    return;
  }
  if (cursor_ < plan_->events.size() && plan_->events[cursor_] == event) {
    ++cursor_;
    return;
  }
  // From here on this step is no longer the planned one. Blocks already handed out stay valid:
  // nothing else is placed in the arena until the next plan.
  diverged_ = true;
  divergence_ =
      str_cat("event ", cursor_, " is ", event.is_free ? "a release" : "an allocation of ",
              event.is_free ? "" : str_cat(event.value, " bytes"));
}

void Allocator::begin_step(const std::string& kind) {
  PHX_ASSERT(plan_ == nullptr, "begin_step inside of a step");
  if (!arena_enabled_) return;
  plan_ = &plans_[kind];
  if (plan_->arena != nullptr && plan_->offsets.empty()) {
    // A dropped plan whose blocks still live: run this step from the cache.
    plan_ = nullptr;
    return;
  }
  step_ = num_steps_++;
  next_ordinal_ = 0;
  cursor_ = 0;
  diverged_ = false;
  recorded_.clear();
}

void Allocator::end_step() {
  if (plan_ == nullptr) return;
  Plan& plan = *plan_;
  plan_ = nullptr;
  if (plan.arena == nullptr) {
    const bool same = !recorded_.empty() && recorded_ == plan.events;
    plan.events = std::move(recorded_);
    recorded_ = {};
    if (same) pack(plan);
    return;
  }
  if (!diverged_ && cursor_ == plan.events.size()) {
    ++report_.replayed_steps;
    return;
  }
  ++report_.diverged_steps;
  plan.events.clear();
  plan.offsets.clear();
  if (plan.live == 0) drop_arena(plan);
}

void Allocator::drop_arena(Plan& plan) {
  report_.arena -= plan.arena_bytes;
  report_.reserved -= plan.arena_bytes;
  source_->free(plan.arena, plan.arena_bytes);
  plan.arena = nullptr;
  plan.arena_bytes = 0;
}

void Allocator::pack(Plan& plan) {
  std::vector<Interval> intervals;  // one per allocation, in order
  for (size_t time = 0; time < plan.events.size(); ++time) {
    const Event& event = plan.events[time];
    if (event.is_free) {
      intervals[event.value].end = int64_t(time);
    } else {
      intervals.push_back(
          {.size = event.value, .begin = int64_t(time), .end = -1, .lane = event.stream});
    }
  }
  const Packing packing = pack_intervals(intervals);
  if (packing.total == 0) return;
  // The cached blocks that served these tensors so far would now lie idle beside the arena.
  release_cache();
  plan.arena = from_source(packing.total);
  if (plan.arena == nullptr) {  // no room for both: stay with the cache
    plan.events.clear();
    return;
  }
  plan.offsets = packing.offsets;
  plan.arena_bytes = packing.total;
  report_.arena += packing.total;
}

MemoryReport Allocator::report() const { return report_; }

void Allocator::reset_peak() {
  report_.peak = report_.at_peak = report_.live;
  report_.peak_total = sum(report_.live);
}

void Allocator::release_cache() {
  for (auto& [key, bin] : free_) {
    for (void* data : bin) {
      source_->free(data, key.first);
      report_.reserved -= key.first;
    }
    bin.clear();
  }
}

void Allocator::out_of_memory(int64_t bytes, Purpose purpose) const {
  constexpr double kMiB = 1024.0 * 1024.0;
  std::array<int, kNumPurposes> order;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return report_.live[a] > report_.live[b]; });
  std::string holders;
  for (int i : order) {
    if (report_.live[i] == 0) continue;
    holders += str_cat("\n  ", name(static_cast<Purpose>(i)), ": ", int64_t(report_.live[i] / kMiB),
                       " MiB");
  }
  const bool activations = order[0] == static_cast<int>(Purpose::activations);
  throw_error(str_cat("out of memory on ", device_name_, ": ", name(purpose), " asked for ",
                      int64_t(bytes / kMiB), " MiB; in use:", holders, "\n  hint: ",
                      activations ? "a smaller --micro-batch-size, or --recompute-granularity full"
                                  : "a smaller model, or --bf16"));
}

}  // namespace phx
