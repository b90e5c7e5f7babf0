// Device memory: who holds how much for what, a cache of freed blocks, and the planned step arena.
//
// Every allocation is charged to a purpose. The same allocator code runs on cpu, cuda and meta
// (where addresses are invented), so what a meta run reports is what the real run allocates, to the
// byte.
//
// A training step makes the same allocations every time. Between begin_step(kind) and end_step()
// the allocator records them; when two steps of a kind were equal it packs their lifetimes into one
// plan, and later steps replay the offsets by ordinal: no searching, no fragmentation, stable
// addresses. A step that differs falls back to the cache from that point on, is counted, and is
// recorded anew.
//
// Steps never run at the same time, so the plans of all kinds lie in one arena, as large as the
// largest of them. It is made, moved or freed only while no block of it is in use; until then steps
// run from the cache. A step's other streams have been waited for by its compute stream before the
// next step begins: a step of another kind may put its compute blocks where theirs were.
//
// One allocator belongs to one rank and is used from that rank's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {

// The device has no memory left, after everything that could be given back was.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

enum class Purpose : uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  workspace,
  communication,
  runtime
};
inline constexpr int kNumPurposes = 7;
const char* name(Purpose purpose);

// Where raw memory comes from: the C++ heap, cudaMalloc, or (meta) nowhere.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void* allocate(int64_t bytes) = 0;  // nullptr when there is none left
  virtual void free(void* data, int64_t bytes) = 0;
  virtual int64_t available() const = 0;  // bytes left, or a large number if nobody knows
};

struct Block {
  void* data = nullptr;
  int64_t bytes = 0;     // what is charged: the request rounded up to kGranule
  int64_t reserved = 0;  // what was taken from the cache: the size class; 0 for an arena block
  int64_t ordinal = -1;  // position in the step that made it
  int64_t step = -1;     // that step's number; -1 outside of steps
  Purpose purpose = Purpose::activations;
  uint8_t stream = 0;
};

using BytesByPurpose = std::array<int64_t, kNumPurposes>;

struct MemoryReport {
  BytesByPurpose live{};           // now
  BytesByPurpose at_peak{};        // when the total was highest
  BytesByPurpose peak{};           // each purpose's own highest
  int64_t peak_total = 0;          // sum of at_peak
  int64_t reserved = 0;            // taken from the source, arena included
  int64_t peak_reserved = 0;       // the most of it so far
  int64_t arena = 0;               // the arena that all planned steps share
  int64_t source_allocations = 0;  // calls to the source so far: constant in a steady step
  int64_t replayed_steps = 0;      // steps served from the arena to the end
  int64_t diverged_steps = 0;      // steps that began in the arena and fell back
};

class Allocator {
 public:
  static constexpr int64_t kGranule = 256;

  Allocator(std::unique_ptr<MemorySource> source, std::string device_name);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // What a request is charged: whole granules, at least one.
  static int64_t charged(int64_t bytes);
  Block allocate(int64_t bytes, Purpose purpose, uint8_t stream);
  void release(const Block& block);

  // Steps of one kind ("train", "evaluate") are expected to allocate alike.
  void begin_step(const std::string& kind);
  void end_step();  // may be called while an exception passes: the source's own do not leave it
  void use_arena(bool on) { arena_enabled_ = on; }

  MemoryReport report() const;
  void reset_peak();
  void release_cache();  // gives free cached blocks back to the source
  // A sentence on how the last step that left its plan differed from it, or on the plan that last
  // found no room for its arena; empty if neither happened.
  const std::string& last_divergence() const { return divergence_; }
  // What the run's log should say, once for each kind of step: that a step left its plan, with the
  // plan's size and what the step held; that a plan found no room. Empties the list.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  struct Event {
    bool is_free;
    uint8_t stream;
    int64_t value;  // bytes of an allocation, ordinal of a release
    bool operator==(const Event&) const = default;
  };
  struct Plan {
    std::string kind;
    std::vector<Event> events;     // of the last step that was recorded
    std::vector<int64_t> offsets;  // per allocation; -1: outlives the step, not in the arena
    int64_t bytes = 0;             // of the arena; 0: not packed
    bool refused = false;          // there was no room for it: these steps stay with the cache
    bool told = false;             // that a step differed from it
  };
  enum class Mode : uint8_t { outside, from_cache, record, replay };

  Block from_cache(int64_t bytes, Purpose purpose, uint8_t stream);
  void* from_source(int64_t bytes);
  bool planned() const { return mode_ == Mode::record || mode_ == Mode::replay; }
  void note_event(const Event& event);
  void leave_plan(const Event* got);  // nullptr: the step's end
  static int64_t most_held(const std::vector<Event>& events);
  void warn_of_divergence();
  void charge(Purpose purpose, int64_t bytes);
  void pack(Plan& plan);
  void fit_arena();
  void free_arena();
  [[noreturn]] void out_of_memory(int64_t bytes, Purpose purpose) const;

  std::unique_ptr<MemorySource> source_;
  std::string device_name_;
  std::map<std::pair<int64_t, uint8_t>, std::vector<void*>> free_;  // (size class, stream)
  MemoryReport report_;

  bool arena_enabled_ = true;
  char* arena_ = nullptr;
  int64_t arena_bytes_ = 0;
  int64_t arena_live_ = 0;  // blocks in use
  std::map<std::string, Plan> plans_;

  // The running step.
  Mode mode_ = Mode::outside;
  Plan* plan_ = nullptr;
  int64_t step_ = -1;
  int64_t next_ordinal_ = 0;
  size_t cursor_ = 0;            // replay: the next event of the plan
  bool diverged_ = false;        // it began as a replay
  std::vector<Event> recorded_;  // record: its events so far
  std::string divergence_;
  std::vector<std::string> warnings_;
};

}  // namespace phx
