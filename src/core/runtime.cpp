#include "phalanx/core/runtime.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/core/host_region.h"

namespace phx {

const char* name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::meta:
      return "meta";
  }
  return "?";
}

TimeMark Backend::mark_time(StreamName) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return {{}, std::chrono::duration<double, std::milli>(now).count()};
}

double Backend::milliseconds(const TimeMark& from, const TimeMark& to) const {
  return to.ms - from.ms;
}

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

class HeapSource : public MemorySource {
 public:
  void* allocate(int64_t bytes) override {
    const bool large = bytes >= 2 * kHugePage;
    const int64_t alignment = large ? kHugePage : Allocator::kGranule;
    void* data = std::aligned_alloc(alignment, round_up(bytes, alignment));
    if (data != nullptr && large) madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  }
  void free(void* data, int64_t) override { std::free(data); }
  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }
};

// Addresses without memory: distinct, aligned, never touched.
class InventedSource : public MemorySource {
 public:
  explicit InventedSource(int64_t bytes)
      : left_(bytes > 0 ? bytes : std::numeric_limits<int64_t>::max()) {}
  void* allocate(int64_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    const uintptr_t at = next_;
    next_ += round_up(bytes, kHugePage);
    return reinterpret_cast<void*>(at);
  }
  void free(void*, int64_t bytes) override { left_ += bytes; }
  int64_t available() const override { return left_; }

 private:
  uintptr_t next_ = kHugePage;
  int64_t left_;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(Backend* pinned_for) : pinned_for_(pinned_for) {}
  std::unique_ptr<MemorySource> memory_source() override {
    return pinned_for_ != nullptr ? pinned_for_->pinned_source() : std::make_unique<HeapSource>();
  }
  void copy_to_device(void* dst, const void* src, int64_t bytes, StreamName) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);  // of nothing there is no address
  }
  void copy_to_host(void* dst, const void* src, int64_t bytes, StreamName) override {
    if (bytes > 0) std::memcpy(dst, src, bytes);
  }
  void copy_within(void* dst, const void* src, int64_t bytes, StreamName) override {
    if (bytes > 0) std::memmove(dst, src, bytes);
  }
  void copy_rows(const RowCopy& copy, StreamName) override {
    for (int64_t row = 0; row < copy.rows; ++row)
      std::memcpy(static_cast<char*>(copy.dst) + row * copy.dst_pitch,
                  static_cast<const char*>(copy.src) + row * copy.src_pitch, copy.row_bytes);
  }
  void set_zero(void* dst, int64_t bytes, StreamName) override {
    if (bytes > 0) std::memset(dst, 0, bytes);
  }
  std::string description() const override { return "cpu"; }

 private:
  Backend* pinned_for_;
};

class MetaBackend : public Backend {
 public:
  explicit MetaBackend(int64_t bytes) : bytes_(bytes) {}
  std::unique_ptr<MemorySource> memory_source() override {
    return std::make_unique<InventedSource>(bytes_);
  }
  std::shared_ptr<void> host_buffer(int64_t) override { return {}; }  // nobody writes into it
  void copy_to_device(void*, const void*, int64_t, StreamName) override {}
  void copy_to_host(void*, const void*, int64_t, StreamName) override {
    throw_error("a meta tensor has no values to read");
  }
  void copy_within(void*, const void*, int64_t, StreamName) override {}
  void copy_rows(const RowCopy&, StreamName) override {}
  void set_zero(void*, int64_t, StreamName) override {}
  std::string description() const override { return "meta"; }

 private:
  int64_t bytes_;
};

std::unique_ptr<Backend> make_backend(const RuntimeOptions& options) {
  switch (options.kind) {
    case DeviceKind::cpu:
      return std::make_unique<CpuBackend>(options.pinned_for);
    case DeviceKind::meta:
      return std::make_unique<MetaBackend>(options.meta_bytes);
    case DeviceKind::cuda:
      break;
  }
#ifdef PHX_HAVE_CUDA
  return make_cuda_backend(options.cuda_ordinal);
#else
  throw_error("this phalanx was built without CUDA; build the 'cuda' preset, or use --device cpu");
#endif
}

}  // namespace

#ifndef PHX_HAVE_CUDA
bool cuda_available(std::string* why) {
  if (why != nullptr) *why = "built without CUDA";
  return false;
}
#endif

std::shared_ptr<void> Backend::host_buffer(int64_t bytes) {
  return {std::aligned_alloc(Allocator::kGranule, round_up(bytes, Allocator::kGranule)), std::free};
}

std::shared_ptr<void> Backend::host_region(int64_t bytes) { return phx::host_region(bytes); }

std::unique_ptr<MemorySource> Backend::pinned_source() { return std::make_unique<HeapSource>(); }

Runtime::Runtime(const RuntimeOptions& options)
    : options_(options),
      backend_(make_backend(options)),
      allocator_(std::make_unique<Allocator>(backend_->memory_source(), phx::name(options.kind))),
      threads_(
          std::make_unique<ThreadPool>(options.kind == DeviceKind::cpu ? options.threads : 1)) {}

Runtime::~Runtime() {
  extensions_.clear();  // library handles go before the streams and memory they use
}

DeviceKind Device::kind() const { return runtime_->kind(); }
DeviceKind Device::target() const { return runtime_->target(); }
void* Device::compute_stream() const {
  return runtime_->backend().native_stream(StreamName::compute);
}
ThreadPool& Device::threads() const { return runtime_->threads(); }

void* Stream::native() const { return runtime_->backend().native_stream(name_); }
Fence Stream::record() const { return runtime_->backend().record(name_); }
void Stream::wait(const Fence& fence) const { runtime_->backend().wait(name_, fence); }
void Stream::synchronize() const {
  ++runtime_->host_waits_;
  runtime_->backend().synchronize(name_);
}

}  // namespace phx
