#include "phalanx/checkpoint/saver.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/saver_job.h"

namespace phx {

namespace {

// Slots that are filled, written and being waited for, of a save that holds nothing back.
constexpr int64_t kWaitingRing = 6 * StagingRing::kSlotBytes;
constexpr int64_t kHeaderRoom = 16 << 20;  // what a shard's header may take, beside the tensors

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string shard_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "shard_%05d.safetensors", rank);
  return name;
}

// The memories that boxes lie in: states may be on the host while weights are on a device.
std::set<Runtime*> runtimes_of(const std::vector<LocalBox>& boxes) {
  std::set<Runtime*> runtimes;
  for (const LocalBox& box : boxes) runtimes.insert(&box.flat.runtime());
  return runtimes;
}

// The one that copies by itself; null: all is on the host.
Runtime* device_of(const std::set<Runtime*>& runtimes) {
  const auto found = std::ranges::find_if(
      runtimes, [](const Runtime* runtime) { return runtime->kind() != DeviceKind::cpu; });
  return found == runtimes.end() ? nullptr : *found;
}

}  // namespace

CheckpointSaver::CheckpointSaver(SaverOptions options)
    : options_(std::move(options)), ring_(std::make_unique<Ring>()) {}

CheckpointSaver::~CheckpointSaver() {
  if (reserver_.joinable()) reserver_.join();
  if (!job_) return;
  job_->set(&Job::stop);
  ring_->give_up();
  job_->join();
}

void CheckpointSaver::reserve(const std::vector<LocalBox>& boxes) {
  int64_t bytes = kHeaderRoom;
  for (const LocalBox& box : boxes) bytes += box.bytes();
  Runtime* device = device_of(runtimes_of(boxes));
  const auto make = [this, bytes, device] {
    try {
      if (device != nullptr) device->backend().attach_thread();
      ring_->reserve(bytes, options_.ring_bytes, device);
    } catch (const Error&) {
      // The first save tries again, and says what is wrong.
    }
  };
  try {
    reserver_ = std::thread(make);
  } catch (const std::system_error&) {
    make();
  }
}

void CheckpointSaver::begin(int64_t iteration, std::vector<LocalBox> boxes, CheckpointInfo info,
                            SaveMode mode) {
  wait();
  const Clock::time_point start = Clock::now();
  if (reserver_.joinable()) reserver_.join();
  if (rank() == 0) prepare_checkpoint(options_.folder, iteration, *options_.disk);
  if (options_.world != nullptr) options_.world->barrier();
  auto job = std::make_unique<Job>();
  job->iteration = iteration;
  job->boxes = std::move(boxes);
  job->info = std::move(info);
  job->start = start;
  job->report = {.iteration = iteration,
                 .path = checkpoint_path(options_.folder, iteration),
                 .bytes = 0,
                 .seconds = 0,
                 .stall_seconds = 0};
  for (const LocalBox& box : job->boxes) job->report.bytes += box.bytes();
  job->runtimes = runtimes_of(job->boxes);
  Runtime* device = device_of(job->runtimes);
  job->on_host = device == nullptr;
  // A rank may have nothing to write: all that it holds may be copies of what others write.
  std::vector<PieceToWrite> pieces;
  for (const LocalBox& box : job->boxes) pieces.push_back({box.name, box.info, box.box});
  job->shard = std::make_unique<ShardWriter>(temporary_path(options_.folder, iteration),
                                             shard_name(rank()), std::move(pieces), *options_.disk);
  job->bytes = std::make_unique<ShardBytes>(job->shard->header(), job->boxes);
  const int64_t most =
      mode == SaveMode::waiting ? std::min(options_.ring_bytes, kWaitingRing) : options_.ring_bytes;
  ring_->begin(job->bytes->size(), most, device);
  job->copy_first = mode == SaveMode::background && ring_->holds_all();
  // Copies come behind what the devices have been told to compute so far. Others copy on this lane
  // at the same time, from their own thread (core/step_scalars.cpp, core/layer_offload.cpp,
  // optim/host_update.cpp). That is safe: a lane takes work from any thread; what is saved does not
  // change before wait_for_copies(), so it does not matter behind which of their copies, and behind
  // which computation that those wait for, ours come; and none of them waits for an update, which
  // alone waits for us, so there is no circle.
  for (Runtime* runtime : job->runtimes)
    runtime->stream(StreamName::d2h).wait(runtime->stream(StreamName::compute).record());
  job_ = std::move(job);
  start_threads();
  job_->stall += seconds_since(start);
}

void CheckpointSaver::wait_for_copies() {
  if (!job_) return;
  const Clock::time_point start = Clock::now();
  job_->wait(&Job::copied);
  job_->stall += seconds_since(start);
}

void CheckpointSaver::rethrow() {
  {
    const std::lock_guard lock(job_->mutex);
    if (!job_->error) return;
    job_->stop = true;
    job_->changed.notify_all();
  }
  ring_->give_up();
  job_->join();
  const auto job = std::move(job_);
  std::rethrow_exception(job->error);
}

std::optional<SaveReport> CheckpointSaver::poll() {
  if (!job_) return std::nullopt;
  rethrow();
  const std::lock_guard lock(job_->mutex);
  if (!job_->committed || job_->reported) return std::nullopt;
  job_->reported = true;
  job_->report.stall_seconds = job_->stall;
  return job_->report;
}

std::optional<SaveReport> CheckpointSaver::wait() {
  if (!job_) return std::nullopt;
  const Clock::time_point start = Clock::now();
  job_->wait(&Job::written);
  rethrow();
  // All parts are there, so that rank 0 has nobody left to wait for; and a rank that failed has
  // thrown above, which ends this wait.
  if (options_.world != nullptr) options_.world->barrier();
  if (rank() == 0) {
    job_->wait(&Job::committed);
    rethrow();
  }
  if (options_.world != nullptr) options_.world->barrier();
  job_->join();
  job_->stall += seconds_since(start);
  std::optional<SaveReport> report;
  if (rank() == 0 && !job_->reported) {
    report = job_->report;
    report->stall_seconds = job_->stall;
  }
  job_.reset();
  return report;
}

}  // namespace phx
