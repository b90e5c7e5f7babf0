// A rank's Runtime: its device, memory, streams, worker threads, seed, grad mode and current
// purpose. There are no globals: a tensor's device() is a handle on its Runtime, and ops reach
// everything through their arguments. That is what lets many ranks live in one process as threads.
// A Runtime is used from one thread and outlives its tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "phalanx/core/memory.h"
#include "phalanx/core/thread_pool.h"

namespace phx {

enum class DeviceKind : uint8_t { cpu, cuda, meta };
const char* name(DeviceKind kind);

// Named lanes of work. Work on one stream runs in order; on cpu and meta every stream runs inline.
// Pipeline messages have one for each direction and end: a message that waits for its peer holds up
// none of another kind.
enum class StreamName : uint8_t {
  compute,
  h2d,
  d2h,
  tp,
  cp,
  ep,
  dp,
  pp_forward_in,
  pp_forward_out,
  pp_backward_in,
  pp_backward_out
};
inline constexpr int kNumStreams = 11;

class Runtime;
class Storage;

// A point on a stream that another stream can wait for. Cross-stream use of a tensor passes one.
struct Fence {
  std::shared_ptr<void> event;  // empty on cpu and meta
};

// A moment in a stream's work, for OpTrace.
struct TimeMark {
  std::shared_ptr<void> event;  // empty on cpu and meta
  double ms = 0;                // there: of the host's clock
};
class OpTrace;

class Stream {
 public:
  Stream(Runtime* runtime, StreamName name) : runtime_(runtime), name_(name) {}
  StreamName name() const { return name_; }
  void* native() const;  // the cudaStream_t; nullptr on cpu and meta
  Fence record() const;
  void wait(const Fence& fence) const;
  void synchronize() const;  // the host waits until the stream is empty

 private:
  Runtime* runtime_;
  StreamName name_;
};

// A copy of rows that do not lie end to end.
struct RowCopy {
  void* dst;
  int64_t dst_pitch;  // bytes from row to row
  const void* src;
  int64_t src_pitch;
  int64_t row_bytes, rows;
};

// What a device must be able to do beside kernels. cpu and meta share a trivial one.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<MemorySource> memory_source() = 0;
  virtual void* native_stream(StreamName) { return nullptr; }
  virtual Fence record(StreamName) { return {}; }
  virtual void wait(StreamName, const Fence&) {}
  virtual void synchronize(StreamName) {}
  virtual void wait_on_host(const Fence&) {}  // the host waits until the fence is passed
  // A thread beside the runtime's own that copies from or to the device calls this first. Threads
  // may share a stream of copies, as a saver does d2h with a step's results and the offloaded
  // update: each waits for a fence that it recorded behind its own copies. Such a fence may also
  // wait for copies of others that came between, never for less.
  virtual void attach_thread() {}
  // Host memory that the device copies from and to without the host waiting (pinned on cuda).
  virtual std::shared_ptr<void> host_buffer(int64_t bytes);
  // The same for large pieces, with every page there (core/host_region.h).
  virtual std::shared_ptr<void> host_region(int64_t bytes);
  // The same as a source for an allocator of the host (core/host_side.h).
  virtual std::unique_ptr<MemorySource> pinned_source();
  virtual void copy_to_device(void* dst, const void* src, int64_t bytes, StreamName stream) = 0;
  virtual void copy_to_host(void* dst, const void* src, int64_t bytes, StreamName stream) = 0;
  virtual void copy_within(void* dst, const void* src, int64_t bytes, StreamName stream) = 0;
  virtual void copy_rows(const RowCopy& copy, StreamName stream) = 0;
  virtual void set_zero(void* dst, int64_t bytes, StreamName stream) = 0;
  virtual TimeMark mark_time(StreamName stream);
  virtual double milliseconds(const TimeMark& from, const TimeMark& to) const;  // both passed
  // For profilers that look on from outside: named ranges of the host's work (NVTX), and the
  // window that they are to record. Nothing on cpu and meta.
  virtual void push_range(const char* /*name*/) {}
  virtual void pop_range() {}
  virtual void open_profiler_window() {}
  virtual void close_profiler_window() {}
  virtual std::string description() const = 0;
};

// What kernels did: counted on meta, and elsewhere while they are traced (core/op_trace.h).
struct Cost {
  int64_t flops = 0;
  int64_t bytes = 0;  // read plus written, each operand once
};

class Device {
 public:
  explicit Device(Runtime* runtime) : runtime_(runtime) {}
  Runtime& runtime() const { return *runtime_; }
  DeviceKind kind() const;
  DeviceKind target() const;  // what a meta device impersonates; otherwise kind()
  void* compute_stream() const;
  ThreadPool& threads() const;
  bool operator==(const Device&) const = default;

 private:
  Runtime* runtime_;
};

// How far cuDNN's attention is relied on: every plan is tested at its first use, not tested, or
// not used at all (kernels/cuda/attention_trust.h).
enum class CudnnUse : uint8_t { checked, trusted, off };

struct RuntimeOptions {
  DeviceKind kind = DeviceKind::cpu;
  DeviceKind target = DeviceKind::cpu;  // for meta only
  int64_t meta_bytes = 0;               // that a meta device has; 0: no end of them
  int threads = 1;                      // of CPU kernels
  int cuda_ordinal = 0;
  bool deterministic = false;  // cuda: only kernels with a fixed order of additions
  CudnnUse cudnn_attention = CudnnUse::checked;
  std::string gemm_table;         // cuda: file of `phalanx tune`; empty: the user's; "none"
  Backend* pinned_for = nullptr;  // cpu only: memory that this device copies from and to
};

class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Device device() { return Device(this); }
  DeviceKind kind() const { return options_.kind; }
  DeviceKind target() const { return kind() == DeviceKind::meta ? options_.target : kind(); }
  bool deterministic() const { return options_.deterministic; }
  const RuntimeOptions& options() const { return options_; }
  std::string description() const { return backend_->description(); }

  Allocator& allocator() { return *allocator_; }
  ThreadPool& threads() { return *threads_; }
  Backend& backend() { return *backend_; }
  Stream stream(StreamName name) { return Stream(this, name); }
  void synchronize() { stream(StreamName::compute).synchronize(); }
  void wait_on_host(const Fence& fence) {  // the host waits until the fence is passed
    ++host_waits_;
    backend_->wait_on_host(fence);
  }
  // How often this rank's thread has waited for its device so far within a step, on cpu as well,
  // where there is nothing to wait for: a step that waits for nothing leaves the number as it was.
  // The loader's wait for its own memory, before a step, is not counted.
  int64_t host_waits() const { return host_waits_; }

  bool grad_enabled() const { return grad_enabled_; }
  Purpose purpose() const { return purpose_; }
  uint64_t next_node_order() { return next_order_++; }
  // Where new storages are noted down, if anybody wants to know of them (StorageWatch).
  std::vector<std::weak_ptr<Storage>>* made_storages() const { return made_storages_; }

  void count(const Cost& cost) {
    cost_.flops += cost.flops;
    cost_.bytes += cost.bytes;
  }
  const Cost& cost() const { return cost_; }
  OpTrace* trace() const { return trace_; }  // null: nobody looks
  void set_trace(OpTrace* trace) { trace_ = trace; }

  // One T for this rank, made on first use: where a backend keeps its library handles.
  template <class T>
  T& extension() {
    auto& slot = extensions_[std::type_index(typeid(T))];
    if (!slot) slot = std::shared_ptr<void>(std::make_shared<T>(*this));
    return *static_cast<T*>(slot.get());
  }
  // The same if somebody made it; else null.
  template <class T>
  T* made_extension() {
    const auto found = extensions_.find(std::type_index(typeid(T)));
    return found == extensions_.end() ? nullptr : static_cast<T*>(found->second.get());
  }

 private:
  friend class Stream;
  friend class GradMode;
  friend class PurposeScope;
  friend class StorageWatch;
  RuntimeOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<ThreadPool> threads_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> extensions_;
  bool grad_enabled_ = true;
  Purpose purpose_ = Purpose::activations;
  std::vector<std::weak_ptr<Storage>>* made_storages_ = nullptr;
  uint64_t next_order_ = 0;
  int64_t host_waits_ = 0;
  Cost cost_;
  OpTrace* trace_ = nullptr;
};

// Within its scope, ops record (or do not record) their backward.
class GradMode {
 public:
  GradMode(Runtime& runtime, bool enabled)
      : runtime_(runtime), before_(std::exchange(runtime.grad_enabled_, enabled)) {}
  ~GradMode() { runtime_.grad_enabled_ = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  Runtime& runtime_;
  bool before_;
};

// Within its scope, allocations are charged to `purpose`.
class PurposeScope {
 public:
  PurposeScope(Runtime& runtime, Purpose purpose)
      : runtime_(runtime), before_(std::exchange(runtime.purpose_, purpose)) {}
  ~PurposeScope() { runtime_.purpose_ = before_; }
  PurposeScope(const PurposeScope&) = delete;
  PurposeScope& operator=(const PurposeScope&) = delete;

 private:
  Runtime& runtime_;
  Purpose before_;
};

// Within its scope, storages that are made are noted down in `made`.
class StorageWatch {
 public:
  StorageWatch(Runtime& runtime, std::vector<std::weak_ptr<Storage>>& made)
      : runtime_(runtime), before_(std::exchange(runtime.made_storages_, &made)) {}
  ~StorageWatch() { runtime_.made_storages_ = before_; }
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

 private:
  Runtime& runtime_;
  std::vector<std::weak_ptr<Storage>>* before_;
};

#ifdef PHX_HAVE_CUDA
std::unique_ptr<Backend> make_cuda_backend(int ordinal);
#endif
// Whether this build can use a GPU here; if not, `why` says so in a phrase.
bool cuda_available(std::string* why = nullptr);

}  // namespace phx
