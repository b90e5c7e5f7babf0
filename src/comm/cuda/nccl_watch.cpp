#include "phalanx/comm/cuda/nccl_watch.h"

#include <exception>
#include <iterator>
#include <utility>

#include "phalanx/base/log.h"
#include "phalanx/comm/byte_transport.h"
#include "phalanx/core/cuda/check.h"

namespace phx::cuda {

namespace {

constexpr auto kLook = std::chrono::milliseconds(200);  // how often the watch looks
constexpr int kLooksPerStore = 5;                       // and how seldom at the store
constexpr auto kGrace = std::chrono::seconds(2);        // a call that enqueues has returned by then

}  // namespace

NcclWatch::NcclWatch(const TcpStoreOptions& store, int gpu, std::shared_ptr<RankLedgers> ledgers,
                     const Settings& settings)
    : options_(store), gpu_(gpu), ledgers_(std::move(ledgers)), store_(store) {
  compare_settings(store_, store.rank, store.size, settings);
  thread_ = std::thread([this] { run(); });
}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (failure_) store_.abandon();
}

// --- groups

// The first member waits until all are there, then gives them the id: who does not come is named.
std::string NcclWatch::gather_and_publish_id(const GroupInfo& info) {
  const std::string key = str_cat("nccl/", info.id);
  if (info.rank != 0) {
    store_.set(str_cat(key, "/", info.members[info.rank]), "");
    return store_.get(key + "/id");
  }
  const Deadline deadline = deadline_in(options_.timeout);
  for (size_t i = 1; i < info.members.size(); ++i) {
    try {
      store_.get(str_cat(key, "/", info.members[i]),
                 std::chrono::milliseconds(milliseconds_until(deadline)));
    } catch (const Stalled&) {
      throw_error(str_cat("rank ", info.members[i], " did not come to make group ", info.name,
                          " within ", std::chrono::duration<double>(options_.timeout).count(),
                          " s"));
    }
  }
  ncclUniqueId id;
  check(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::string text(id.internal, sizeof id.internal);
  store_.set(key + "/id", text);
  return text;
}

NcclWatch::Handle NcclWatch::join(const GroupInfo& info) {
  throw_if_failed();
  PHX_CUDA_CHECK(cudaSetDevice(gpu_));
  const std::string text = gather_and_publish_id(info);
  ncclUniqueId id;
  PHX_ASSERT(text.size() == sizeof id.internal, "an NCCL id has ", text.size(), " bytes");
  text.copy(id.internal, sizeof id.internal);

  Handle group;
  {
    const std::lock_guard lock(mutex_);
    groups_.push_back({.name = info.name, .id = info.id, .members = info.members});
    group = std::prev(groups_.end());
  }
  try {
    make(group, info, id);
  } catch (...) {
    leave(group, Leave::in_error);
    throw;
  }
  return group;
}

void NcclWatch::make(Handle group, const GroupInfo& info, const ncclUniqueId& id) {
  // Blocking: a communicator that is not starts a thread for every call.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.commName = group->name.c_str();  // NCCL may keep the pointer: it stays until `leave`
  PHX_CUDA_CHECK(cudaEventCreateWithFlags(&group->mark, cudaEventDisableTiming));
  ncclComm_t comm = nullptr;
  const ncclResult_t result =
      nccl_.ncclCommInitRankConfig(&comm, int(info.members.size()), id, info.rank, &config);
  PHX_CHECK(result == ncclSuccess, "NCCL: group ", info.name,
            " cannot be made: ", nccl_.text(result),
            result == ncclInvalidUsage
                ? "\n  hint: if ranks share a GPU, set PHX_SHARE_GPU=1; otherwise start no more "
                  "ranks on a machine than it has GPUs"
                : "");
  const std::lock_guard lock(mutex_);
  group->comm = comm;
  if (failure_) throw_error(*failure_);  // meanwhile
}

void NcclWatch::leave(Handle group, Leave how) {
  ncclComm_t comm;
  {
    const std::lock_guard lock(mutex_);
    comm = std::exchange(group->comm, nullptr);  // none: aborted, or never made
    group->enqueued = group->recorded = 0;
    group->marked = false;
  }
  // When something failed the others may not come to flush with us.
  if (comm != nullptr && (how == Leave::in_error || std::uncaught_exceptions() > 0))
    (void)nccl_.ncclCommAbort(comm);
  else if (comm != nullptr)
    (void)nccl_.ncclCommDestroy(comm);
  if (group->mark != nullptr) (void)cudaEventDestroy(group->mark);
  const std::lock_guard lock(mutex_);
  groups_.erase(group);
}

NcclWatch::Call::Call(NcclWatch& watch, Handle group) {
  const std::lock_guard lock(watch.mutex_);
  if (watch.failure_) throw_error(*watch.failure_);
  // Gates are closed when there is a failure, under the same mutex.
  PHX_ASSERT(group->gate->enter(), "group ", group->name, " was left");
  gate_ = group->gate;
  comm_ = group->comm;
}

void NcclWatch::enqueued(Handle group, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  group->stream = stream;
  ++group->enqueued;
}

// --- failures

void NcclWatch::check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return throw_if_failed();
  const std::string said = str_cat("NCCL: ", call, " failed: ", nccl_.text(result));
  // When a peer dies NCCL may notice before the store: the store knows who it was.
  if (result == ncclRemoteError || result == ncclSystemError || failed()) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 2 * kLooksPerStore * kLook, [&] { return failure_.has_value(); });
    if (failure_) throw_error(*failure_);
  }
  throw_error(said);
}

void NcclWatch::throw_if_failed() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw_error(*failure_);
}

bool NcclWatch::failed() {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void NcclWatch::fail(const std::string& sentence) {
  try {
    store_.fail(sentence);
  } catch (const Error&) {
    // Rank 0 is gone, and with it the store: all will notice.
  }
  give_up(sentence);
}

// Ends what is under way. No thread may be about to use a communicator when it is aborted: all
// gates are closed first, then those are aborted that nobody is calling into. A call normally
// enqueues and returns, and its communicator is aborted when it has; one that has not returned
// after kGrace is stuck inside of NCCL (a full queue, a connection that is not answered), and
// aborting from here is what gets it out.
void NcclWatch::give_up(const std::string& sentence) {
  struct Ended {
    ncclComm_t comm;
    std::shared_ptr<CallGate> gate;
  };
  std::vector<Ended> busy;
  std::vector<ncclComm_t> idle;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = sentence;
    for (Group& group : groups_) {
      group.gate->close();
      const ncclComm_t comm = std::exchange(group.comm, nullptr);
      if (comm == nullptr) continue;
      if (group.gate->wait_until_empty({}))
        idle.push_back(comm);
      else
        busy.push_back({comm, group.gate});
    }
  }
  changed_.notify_all();
  for (ncclComm_t comm : idle) (void)nccl_.ncclCommAbort(comm);
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  for (const Ended& ended : busy) {
    (void)ended.gate->wait_until_empty(deadline);
    (void)nccl_.ncclCommAbort(ended.comm);
  }
}

// --- the watch

void NcclWatch::run() {
  (void)cudaSetDevice(gpu_);
  // What this thread asks CUDA must not end a graph that the rank's thread is capturing.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  for (int turn = 1;; ++turn) {
    std::optional<std::string> sentence, heard;
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kLook, [&] { return stop_ || failure_; })) return;
      for (Group& group : groups_)
        if (!sentence) sentence = look_at(group);
    }
    if (turn % kLooksPerStore == 0 || sentence) heard = store_.failure();
    if (heard) {  // what another rank said first says more than what we see
      log_error(*heard);
      return give_up(*heard);
    }
    if (sentence) {
      log_error(*sentence);
      return fail(*sentence);
    }
  }
}

// A sentence if something is wrong. No call costs more for being watched: the watch itself leaves a
// mark behind the latest one, and expects the stream to pass it in time.
std::optional<std::string> NcclWatch::look_at(Group& group) {
  if (group.comm == nullptr) return std::nullopt;
  ncclResult_t error = ncclSuccess;
  if (nccl_.ncclCommGetAsyncError(group.comm, &error) == ncclSuccess && error != ncclSuccess &&
      error != ncclInProgress)
    return str_cat("NCCL reports an error in group ", group.name, ": ", nccl_.text(error));
  if (group.marked) {
    if (cudaEventQuery(group.mark) != cudaErrorNotReady)
      group.marked = false;
    else if (milliseconds_until(group.deadline) == 0)
      return explain(group);
  }
  if (!group.marked && group.recorded < group.enqueued) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    (void)cudaStreamIsCapturing(group.stream, &capture);
    if (capture != cudaStreamCaptureStatusNone) return std::nullopt;
    if (cudaEventRecord(group.mark, group.stream) != cudaSuccess) return std::nullopt;
    group.marked = true;
    group.recorded = group.enqueued;
    group.deadline = deadline_in(options_.timeout);
  }
  return std::nullopt;
}

// Of this rank's calls in the group, the first that not all others have made; the latest otherwise.
std::string NcclWatch::explain(const Group& group) const {
  const std::string lead = str_cat("group ", group.name, " was not done after ",
                                   std::chrono::duration<double>(options_.timeout).count(), " s: ");
  std::string text;
  for (const LedgerEntry& entry : ledgers_->own().entries()) {
    if (entry.group_id != group.id || entry.op == CommOp::send) continue;
    text = explain_stall(*ledgers_, group.members, options_.rank, entry);
    if (text.find("did not enter") != std::string::npos ||
        text.find("has not sent") != std::string::npos)
      break;
  }
  return lead + text;
}

}  // namespace phx::cuda
