#include "phalanx/core/memory.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/core/pack_intervals.h"

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
  free_arena();
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
    // An idle arena gives way too, say for the first steps of another kind; it comes back when a
    // later step ends, if there is room.
    if (arena_live_ == 0 && mode_ != Mode::replay) free_arena();
    data = source_->allocate(bytes);
  }
  if (data != nullptr) {
    ++report_.source_allocations;
    report_.reserved += bytes;
    report_.peak_reserved = std::max(report_.peak_reserved, report_.reserved);
  }
  return data;
}

Block Allocator::from_cache(int64_t bytes, Purpose purpose, uint8_t stream) {
  // What is made once and stays is taken as it is: there is nobody to share its block with.
  const bool stays =
      purpose == Purpose::weights || purpose == Purpose::gradients || purpose == Purpose::optimizer;
  Block block{.bytes = bytes,
              .reserved = stays ? bytes : size_class(bytes),
              .purpose = purpose,
              .stream = stream};
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

int64_t Allocator::charged(int64_t bytes) { return std::max(kGranule, round_up(bytes, kGranule)); }

Block Allocator::allocate(int64_t bytes, Purpose purpose, uint8_t stream) {
  bytes = charged(bytes);
  Block block;
  if (!planned()) {
    block = from_cache(bytes, purpose, stream);
  } else {
    const int64_t ordinal = next_ordinal_++;
    note_event({.is_free = false, .stream = stream, .value = bytes});
    if (mode_ == Mode::replay && plan_->offsets[ordinal] >= 0) {
      block = {.data = arena_ + plan_->offsets[ordinal],
               .bytes = bytes,
               .purpose = purpose,
               .stream = stream};
      ++arena_live_;
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
  if (planned() && block.step == step_)
    note_event({.is_free = true, .stream = block.stream, .value = block.ordinal});
  if (block.reserved > 0)
    free_[{block.reserved, block.stream}].push_back(block.data);
  else
    --arena_live_;
}

void Allocator::note_event(const Event& event) {
  if (mode_ == Mode::record) {
    recorded_.push_back(event);
    return;
  }
  const std::vector<Event>& events = plan_->events;
  if (cursor_ < events.size() && events[cursor_] == event) {
    ++cursor_;
    return;
  }
  leave_plan(&event);
  recorded_.push_back(event);
}

// From here on this step is no longer the planned one; it is recorded from its beginning. Blocks
// already handed out stay valid: nothing else is placed in the arena while they live.
void Allocator::leave_plan(const Event* got) {
  const std::vector<Event>& events = plan_->events;
  std::vector<int64_t> sizes;  // per allocation of the plan
  for (const Event& event : events) {
    if (!event.is_free) sizes.push_back(event.value);
  }
  const auto describe = [&](const Event* event, const char* allocation) -> std::string {
    if (event == nullptr) return "the step's end";
    const std::string stream = event->stream == 0 ? "" : str_cat(" on stream ", int(event->stream));
    if (!event->is_free) return str_cat(allocation, " of ", event->value, " bytes", stream);
    return str_cat("the release of allocation ", event->value, " (", sizes[event->value], " bytes)",
                   stream);
  };
  const Event* planned = cursor_ < events.size() ? &events[cursor_] : nullptr;
  const bool one = planned != nullptr && !planned->is_free;
  divergence_ = str_cat("step '", plan_->kind, "' left its plan at event ", cursor_, ": planned ",
                        describe(planned, "an allocation"), ", got ",
                        describe(got, one ? "one" : "an allocation"));
  ++report_.diverged_steps;
  diverged_ = true;
  mode_ = Mode::record;
  recorded_.assign(events.begin(), events.begin() + int64_t(cursor_));
}

// The most bytes that a step's own blocks had at once.
int64_t Allocator::most_held(const std::vector<Event>& events) {
  std::vector<int64_t> sizes;  // per allocation
  int64_t held = 0, most = 0;
  for (const Event& event : events) {
    if (!event.is_free) sizes.push_back(event.value);
    held += event.is_free ? -sizes[size_t(event.value)] : event.value;
    most = std::max(most, held);
  }
  return most;
}

// Of the diverged step that ends, whose plan is still there.
void Allocator::warn_of_divergence() {
  if (std::exchange(plan_->told, true)) return;
  const int64_t held = most_held(recorded_);
  warnings_.push_back(str_cat(divergence_, "; the plan's arena has ", plan_->bytes,
                              " bytes, this step held up to ", held, " at once",
                              held > plan_->bytes ? ", which exceeds it" : "",
                              "; it ran from the cache and is planned anew"));
}

void Allocator::begin_step(const std::string& kind) {
  PHX_ASSERT(mode_ == Mode::outside, "begin_step inside of a step");
  mode_ = Mode::from_cache;
  if (!arena_enabled_) return;
  plan_ = &plans_[kind];
  plan_->kind = kind;
  // Blocks that outlived a diverged step may lie anywhere in the arena.
  if (arena_live_ > 0 || plan_->refused) return;
  if (plan_->bytes > arena_bytes_) return;  // packed, but the arena had to give way
  mode_ = plan_->bytes > 0 ? Mode::replay : Mode::record;
  ++step_;
  next_ordinal_ = 0;
  cursor_ = 0;
  diverged_ = false;
  recorded_.clear();
}

void Allocator::end_step() {
  if (mode_ == Mode::replay && cursor_ < plan_->events.size()) leave_plan(nullptr);
  const Mode mode = mode_;
  mode_ = Mode::outside;
  if (mode == Mode::replay) {
    ++report_.replayed_steps;
  } else if (mode == Mode::record) {
    if (diverged_) warn_of_divergence();
    const bool same = !diverged_ && !recorded_.empty() && recorded_ == plan_->events;
    plan_->events = std::move(recorded_);
    recorded_ = {};
    plan_->offsets.clear();
    plan_->bytes = 0;
    if (same) pack(*plan_);
  }
  if (arena_enabled_ && arena_live_ == 0) fit_arena();
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
  Packing packing = pack_intervals(intervals);
  plan.offsets = std::move(packing.offsets);
  plan.bytes = packing.total;
  // The cached blocks that served these tensors so far would now lie idle beside the arena.
  if (plan.bytes > 0) release_cache();
}

// Makes the arena as large as the largest plan. A plan for which there is no room is given up for
// good: trying again would cost the cache each time.
void Allocator::fit_arena() {
  for (;;) {
    Plan* largest = nullptr;
    for (auto& [kind, plan] : plans_) {
      if (plan.bytes > 0 && (largest == nullptr || plan.bytes > largest->bytes)) largest = &plan;
    }
    const int64_t needed = largest == nullptr ? 0 : largest->bytes;
    if (needed == arena_bytes_) return;
    free_arena();
    if (needed == 0) return;
    release_cache();
    std::string reason = "there is no room for";
    try {
      arena_ = static_cast<char*>(from_source(needed));
    } catch (const std::exception& error) {
      // A step may end in a destructor. A device that is broken says so again at its next call.
      reason = str_cat("the device failed (", error.what(), ") to give");
    }
    if (arena_ != nullptr) {
      arena_bytes_ = report_.arena = needed;
      return;
    }
    largest->refused = true;
    largest->bytes = 0;
    largest->events = {};
    largest->offsets = {};
    divergence_ = str_cat("step '", largest->kind, "' stays with the cache: ", reason,
                          " its arena of ", needed, " bytes");
    warnings_.push_back(divergence_);
  }
}

void Allocator::free_arena() {
  if (arena_ == nullptr) return;
  source_->free(arena_, arena_bytes_);
  report_.reserved -= arena_bytes_;
  arena_ = nullptr;
  arena_bytes_ = report_.arena = 0;
}

MemoryReport Allocator::report() const { return report_; }

void Allocator::reset_peak() {
  report_.peak = report_.at_peak = report_.live;
  report_.peak_total = sum(report_.live);
  report_.peak_reserved = report_.reserved;
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
  throw OutOfMemory(str_cat("out of memory on ", device_name_, ": ", name(purpose), " asked for ",
                            int64_t(bytes / kMiB), " MiB; in use:", holders, "\n  hint: ",
                            activations
                                ? "a smaller --micro-batch-size, or --recompute-granularity full"
                                : "a smaller model, or --bf16"));
}

}  // namespace phx
