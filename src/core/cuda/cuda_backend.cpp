// The CUDA device behind a Runtime: memory by cudaMalloc, named streams, events, copies.
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <limits>
#include <utility>

#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/device_code.h"
#include "phalanx/core/host_region.h"
#include "phalanx/core/runtime.h"

namespace phx {

namespace {

class CudaSource : public MemorySource {
 public:
  explicit CudaSource(int ordinal) : ordinal_(ordinal) {}
  void* allocate(int64_t bytes) override {
    PHX_CUDA_CHECK(cudaSetDevice(ordinal_));
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, size_t(bytes));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // clears it: the allocator reports in its own words
      return nullptr;
    }
    PHX_CUDA_CHECK(status);
    return data;
  }
  void free(void* data, int64_t) override { (void)cudaFree(data); }
  int64_t available() const override {
    size_t free = 0, total = 0;
    PHX_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return int64_t(free);
  }

 private:
  int ordinal_;
};

// Host memory that the GPU copies from and to while the host does other work.
class PinnedSource : public MemorySource {
 public:
  explicit PinnedSource(int ordinal) : ordinal_(ordinal) {}
  void* allocate(int64_t bytes) override {
    PHX_CUDA_CHECK(cudaSetDevice(ordinal_));
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, size_t(bytes));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    PHX_CUDA_CHECK(status);
    return data;
  }
  void free(void* data, int64_t) override { (void)cudaFreeHost(data); }
  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }

 private:
  int ordinal_;
};

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(int ordinal) : ordinal_(ordinal) {
    PHX_CUDA_CHECK(cudaSetDevice(ordinal));
    for (auto& stream : streams_)
      PHX_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaDeviceProp properties;
    PHX_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
    const std::string gpu =
        str_cat("GPU ", ordinal, " is a ", properties.name, " (compute capability ",
                properties.major, ".", properties.minor, ")");
    PHX_CHECK(
        properties.major >= 8, gpu,
        "; phalanx needs 8.0 (A100) or newer: tensor cores compute in bf16 from there on, and "
        "CUDA 13 compiles for nothing below 7.5\n  hint: --device cpu");
    PHX_CHECK(cuda::has_code_for_current_gpu(), gpu, "; this program was built for ",
              cuda::compiled_archs(),
              "\n  hint: build it with -DPHX_CUDA_ARCHS=", properties.major * 10 + properties.minor,
              ", or portable for every GPU from 8.0 on");
    description_ = str_cat("cuda:", ordinal, " (", properties.name, ", ",
                           int64_t(properties.totalGlobalMem >> 20), " MiB)");
  }
  ~CudaBackend() override {
    for (auto& stream : streams_) (void)cudaStreamDestroy(stream);
  }

  std::unique_ptr<MemorySource> memory_source() override {
    return std::make_unique<CudaSource>(ordinal_);
  }
  void* native_stream(StreamName name) override { return get(name); }

  Fence record(StreamName name) override {
    cudaEvent_t event;
    PHX_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    std::shared_ptr<void> owner(
        event, [](void* e) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
    PHX_CUDA_CHECK(cudaEventRecord(event, get(name)));
    return {std::move(owner)};
  }
  void wait(StreamName name, const Fence& fence) override {
    if (fence.event)
      PHX_CUDA_CHECK(cudaStreamWaitEvent(get(name), static_cast<cudaEvent_t>(fence.event.get())));
  }
  void synchronize(StreamName name) override { PHX_CUDA_CHECK(cudaStreamSynchronize(get(name))); }

  void attach_thread() override { PHX_CUDA_CHECK(cudaSetDevice(ordinal_)); }
  void wait_on_host(const Fence& fence) override {
    if (fence.event)
      PHX_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(fence.event.get())));
  }
  std::shared_ptr<void> host_buffer(int64_t bytes) override {
    void* data = nullptr;
    PHX_CUDA_CHECK(cudaMallocHost(&data, size_t(bytes)));
    return {data, [](void* d) { (void)cudaFreeHost(d); }};
  }

  // Pages that are there are pinned twenty times faster than pages that come by being pinned.
  std::shared_ptr<void> host_region(int64_t bytes) override {
    const std::shared_ptr<void> region = phx::host_region(bytes);
    PHX_CUDA_CHECK(cudaHostRegister(region.get(), size_t(bytes), cudaHostRegisterPortable));
    return {region.get(), [region](void* data) { (void)cudaHostUnregister(data); }};
  }

  std::unique_ptr<MemorySource> pinned_source() override {
    return std::make_unique<PinnedSource>(ordinal_);
  }

  void copy_to_device(void* dst, const void* src, int64_t bytes, StreamName stream) override {
    PHX_CUDA_CHECK(cudaMemcpyAsync(dst, src, size_t(bytes), cudaMemcpyHostToDevice, get(stream)));
  }
  void copy_to_host(void* dst, const void* src, int64_t bytes, StreamName stream) override {
    PHX_CUDA_CHECK(cudaMemcpyAsync(dst, src, size_t(bytes), cudaMemcpyDeviceToHost, get(stream)));
  }
  void copy_within(void* dst, const void* src, int64_t bytes, StreamName stream) override {
    PHX_CUDA_CHECK(cudaMemcpyAsync(dst, src, size_t(bytes), cudaMemcpyDeviceToDevice, get(stream)));
  }
  void copy_rows(const RowCopy& copy, StreamName stream) override {
    PHX_CUDA_CHECK(cudaMemcpy2DAsync(copy.dst, size_t(copy.dst_pitch), copy.src,
                                     size_t(copy.src_pitch), size_t(copy.row_bytes),
                                     size_t(copy.rows), cudaMemcpyDeviceToDevice, get(stream)));
  }
  void set_zero(void* dst, int64_t bytes, StreamName stream) override {
    PHX_CUDA_CHECK(cudaMemsetAsync(dst, 0, size_t(bytes), get(stream)));
  }
  TimeMark mark_time(StreamName stream) override {
    cudaEvent_t event;
    PHX_CUDA_CHECK(cudaEventCreate(&event));
    std::shared_ptr<void> owner(
        event, [](void* e) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(e)); });
    PHX_CUDA_CHECK(cudaEventRecord(event, get(stream)));
    return {std::move(owner)};
  }
  double milliseconds(const TimeMark& from, const TimeMark& to) const override {
    float ms = 0;
    PHX_CUDA_CHECK(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from.event.get()),
                                        static_cast<cudaEvent_t>(to.event.get())));
    return ms;
  }
  void push_range(const char* name) override { nvtxRangePushA(name); }
  void pop_range() override { nvtxRangePop(); }
  void open_profiler_window() override { PHX_CUDA_CHECK(cudaProfilerStart()); }
  void close_profiler_window() override { PHX_CUDA_CHECK(cudaProfilerStop()); }
  std::string description() const override { return description_; }

 private:
  cudaStream_t get(StreamName name) const { return streams_[static_cast<size_t>(name)]; }

  int ordinal_;
  std::array<cudaStream_t, kNumStreams> streams_{};
  std::string description_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int ordinal) {
  return std::make_unique<CudaBackend>(ordinal);
}

bool cuda_available(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  (void)cudaGetLastError();
  if (why != nullptr) *why = status == cudaSuccess ? "no GPU found" : cudaGetErrorString(status);
  return false;
}

}  // namespace phx
