#include "phalanx/comm/cuda/nccl_world.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <thread>

#include "phalanx/comm/byte_transport.h"
#include "phalanx/comm/cuda/nccl_watch.h"
#include "phalanx/comm/machine_limits.h"
#include "phalanx/comm/process_ledgers.h"
#include "phalanx/comm/rendezvous.h"
#include "phalanx/core/cuda/check.h"

namespace phx {

namespace {

using cuda::NcclWatch;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
    default:
      throw_error(str_cat("NCCL cannot add in ", dtype));
  }
}

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.native()); }

// A stream and four bytes on the GPU, for barriers.
struct BarrierPlace {
  BarrierPlace() {
    PHX_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    PHX_CUDA_CHECK(cudaMalloc(&data, sizeof(int32_t)));
    PHX_CUDA_CHECK(cudaMalloc(&received, sizeof(int32_t)));
    PHX_CUDA_CHECK(cudaMemsetAsync(data, 0, sizeof(int32_t), stream));
    PHX_CUDA_CHECK(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming));
  }
  ~BarrierPlace() {
    (void)cudaEventDestroy(passed);
    (void)cudaFree(data);
    (void)cudaFree(received);
    (void)cudaStreamDestroy(stream);
  }
  BarrierPlace(const BarrierPlace&) = delete;
  BarrierPlace& operator=(const BarrierPlace&) = delete;

  cudaStream_t stream = nullptr;
  void* data = nullptr;
  void* received = nullptr;
  cudaEvent_t passed = nullptr;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(GroupInfo group, std::shared_ptr<NcclWatch> watch,
                   std::shared_ptr<BarrierPlace> barrier_place)
      : Communicator(std::move(group)),
        watch_(std::move(watch)),
        barrier_place_(std::move(barrier_place)) {
    if (size() == 1) return;
    group_ = watch_->join(info());
    try {
      do_barrier();  // connects: not in the first step
      if (size() == 2) connect_pairs();
    } catch (...) {
      watch_->leave(group_, NcclWatch::Leave::in_error);
      throw;
    }
  }
  ~NcclCommunicator() override {
    if (size() > 1) watch_->leave(group_, NcclWatch::Leave::well);
  }

  bool asynchronous() const override { return size() > 1; }

  // Sends and receives have connections of their own, which are made at first use: both sides wait
  // for each other on the host then, and allocate. A pipeline would get stuck there. In round d a
  // rank sends to the d-th behind it.
  void connect_pairs() override {
    const BarrierPlace& place = *barrier_place_;
    for (int d = 1; d < size(); ++d)
      call(place.stream, "ncclSend and ncclRecv", [&](ncclComm_t comm) {
        const int to = (rank() + d) % size(), from = (rank() - d + size()) % size();
        Grouped grouped(*this);
        grouped.add(nccl().ncclSend(place.data, 1, ncclUint8, to, comm, place.stream));
        grouped.add(nccl().ncclRecv(place.received, 1, ncclUint8, from, comm, place.stream));
        return grouped.end();
      });
    do_barrier();
  }

 protected:
  bool takes(DeviceKind kind) const override { return kind == DeviceKind::cuda; }

  void do_all_reduce(const Tensor& x, ReduceOp op, const Tensor&, Stream stream) override {
    call(native(stream), "ncclAllReduce", [&](ncclComm_t comm) {
      return nccl().ncclAllReduce(x.raw(), x.raw(), size_t(x.numel()), nccl_type(x.dtype()),
                                  op == ReduceOp::sum ? ncclSum : ncclMax, comm, native(stream));
    });
  }
  // What only moves goes as bytes: NCCL has no name for some of our types.
  void do_all_gather(const Tensor& shard, const Tensor& full, Stream stream) override {
    call(native(stream), "ncclAllGather", [&](ncclComm_t comm) {
      return nccl().ncclAllGather(shard.raw(), full.raw(), size_t(shard.bytes()), ncclUint8, comm,
                                  native(stream));
    });
  }
  void do_reduce_scatter(const Tensor& full, const Tensor& shard, const Tensor&,
                         Stream stream) override {
    call(native(stream), "ncclReduceScatter", [&](ncclComm_t comm) {
      return nccl().ncclReduceScatter(full.raw(), shard.raw(), size_t(shard.numel()),
                                      nccl_type(full.dtype()), ncclSum, comm, native(stream));
    });
  }
  void do_broadcast(const Tensor& x, int root, Stream stream) override {
    call(native(stream), "ncclBroadcast", [&](ncclComm_t comm) {
      return nccl().ncclBroadcast(x.raw(), x.raw(), size_t(x.bytes()), ncclUint8, root, comm,
                                  native(stream));
    });
  }
  void do_all_to_all(const Tensor& in, std::span<const int64_t> send_rows, const Tensor& out,
                     std::span<const int64_t> receive_rows, Stream stream) override {
    int64_t row_bytes = size_of(in.dtype());
    for (int i = 1; i < in.rank(); ++i) row_bytes *= in.dim(i);
    call(native(stream), "ncclSend and ncclRecv", [&](ncclComm_t comm) {
      Grouped grouped(*this);
      char* source = static_cast<char*>(in.raw());
      char* target = static_cast<char*>(out.raw());
      for (int r = 0; r < size(); ++r) {
        const size_t sent = size_t(send_rows[r] * row_bytes);
        const size_t received = size_t(receive_rows[r] * row_bytes);
        if (sent > 0)
          grouped.add(nccl().ncclSend(source, sent, ncclUint8, r, comm, native(stream)));
        if (received > 0)
          grouped.add(nccl().ncclRecv(target, received, ncclUint8, r, comm, native(stream)));
        source += sent;
        target += received;
      }
      return grouped.end();
    });
  }
  void do_exchange(std::span<const Message> messages, Stream stream) override {
    call(native(stream), "ncclSend and ncclRecv", [&](ncclComm_t comm) {
      Grouped grouped(*this);
      for (const Message& message : messages) {
        const Tensor& x = message.tensor;
        const size_t bytes = size_t(x.bytes());
        if (bytes == 0) continue;
        grouped.add(
            message.kind == Message::Kind::send
                ? nccl().ncclSend(x.raw(), bytes, ncclUint8, message.peer, comm, native(stream))
                : nccl().ncclRecv(x.raw(), bytes, ncclUint8, message.peer, comm, native(stream)));
      }
      return grouped.end();
    });
  }

  // Asleep between looks, so that a failure or a time-out ends the wait.
  void do_barrier() override {
    const BarrierPlace& place = *barrier_place_;
    call(place.stream, "ncclAllReduce", [&](ncclComm_t comm) {
      return nccl().ncclAllReduce(place.data, place.data, 1, ncclInt32, ncclSum, comm,
                                  place.stream);
    });
    PHX_CUDA_CHECK(cudaEventRecord(place.passed, place.stream));
    const Deadline deadline = deadline_in(watch_->timeout());
    auto nap = std::chrono::microseconds(10);
    while (true) {
      const cudaError_t status = cudaEventQuery(place.passed);
      watch_->throw_if_failed();
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) PHX_CUDA_CHECK(status);
      if (milliseconds_until(deadline) == 0)
        throw Stalled(str_cat("nothing came for ",
                              std::chrono::duration<double>(watch_->timeout()).count(), " s"));
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, std::chrono::microseconds(1000));
    }
  }

  void do_fail(const std::string& why) override {
    watch_->fail(str_cat("rank ", members()[rank()], " failed: ", why));
  }

 private:
  const cuda::NcclLibrary& nccl() const { return watch_->nccl(); }

  // One NCCL operation or group of them.
  template <class Body>
  void call(cudaStream_t stream, const char* what, Body&& body) {
    ncclResult_t result;
    {
      const NcclWatch::Call call(*watch_, group_);
      result = body(call.comm());
      watch_->enqueued(group_, stream);
    }
    watch_->check(result, what);
  }

  // Sends and receives between ncclGroupStart and ncclGroupEnd; the first error counts.
  class Grouped {
   public:
    explicit Grouped(NcclCommunicator& owner) : owner_(owner) {
      add(owner.nccl().ncclGroupStart());
    }
    void add(ncclResult_t result) {
      if (first_ == ncclSuccess) first_ = result;
    }
    ncclResult_t end() {
      add(owner_.nccl().ncclGroupEnd());
      return first_;
    }

   private:
    NcclCommunicator& owner_;
    ncclResult_t first_ = ncclSuccess;
  };

  std::shared_ptr<NcclWatch> watch_;
  std::shared_ptr<BarrierPlace> barrier_place_;
  NcclWatch::Handle group_;
};

int number_of_gpus() {
  int count = 0;
  PHX_CUDA_CHECK(cudaGetDeviceCount(&count));
  PHX_CHECK(count > 0, "this machine has no GPU; use --device cpu");
  return count;
}

class NcclWorld : public World {
 public:
  NcclWorld(const LaunchEnvironment& environment, const WorldOptions& options)
      : environment_(environment),
        // A rank may see only the GPU that is its own: then that is number 0.
        gpu_(environment.local_rank % number_of_gpus()),
        ledgers_(std::make_shared<ProcessLedgers>(environment)) {
    make_room_for_files(environment.size);
    PHX_CUDA_CHECK(cudaSetDevice(gpu_));
    watch_ = std::make_shared<NcclWatch>(store_options(environment, options.timeout), gpu_,
                                         ledgers_, options.settings);
    barrier_place_ = std::make_shared<BarrierPlace>();
  }
  ~NcclWorld() override {
    if (watch_->failed()) ledgers_->keep();
  }

  int rank() const override { return environment_.rank; }
  int size() const override { return environment_.size; }
  int local_rank() const override { return environment_.local_rank; }
  int gpu() const override { return gpu_; }
  std::string description() const override {
    return str_cat(size(), " ranks as processes over NCCL ", watch_->nccl().version(),
                   ", started by ", environment_.launcher);
  }
  void fail(const std::string& why) override {
    if (!watch_->failed()) ledgers_->note_first_failure();
    watch_->fail(str_cat("rank ", rank(), " failed: ", why));
  }
  void check() override { watch_->throw_if_failed(); }

 protected:
  std::shared_ptr<RankLedgers> ledgers() override { return ledgers_; }
  std::unique_ptr<Communicator> make_group(GroupInfo info) override {
    return std::make_unique<NcclCommunicator>(std::move(info), watch_, barrier_place_);
  }

 private:
  LaunchEnvironment environment_;
  int gpu_;
  std::shared_ptr<ProcessLedgers> ledgers_;
  std::shared_ptr<NcclWatch> watch_;
  std::shared_ptr<BarrierPlace> barrier_place_;
};

}  // namespace

std::unique_ptr<World> make_nccl_world(const LaunchEnvironment& environment,
                                       const WorldOptions& options) {
  return std::make_unique<NcclWorld>(environment, options);
}

}  // namespace phx
