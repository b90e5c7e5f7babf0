#include "phalanx/checkpoint/saver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/shard_bytes.h"
#include "phalanx/checkpoint/shard_reader.h"
#include "phalanx/checkpoint/shard_writer.h"
#include "phalanx/checkpoint/staging_ring.h"

namespace phx {

namespace {

// Slots that are filled, written and being waited for, of a save that holds nothing back.
constexpr int64_t kWaitingRing = 6 * StagingRing::kSlotBytes;
constexpr int kWriters = 4;                // one leaves a fast disk waiting between two parts
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

std::string part_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank_%05d.part", rank);
  return name;
}

}  // namespace

struct CheckpointSaver::Ring : StagingRing {};

struct CheckpointSaver::Job {
  int64_t iteration = 0;
  std::vector<LocalBox> boxes;
  CheckpointInfo info;
  Clock::time_point start;
  double stall = 0;
  std::set<Runtime*> runtimes;
  bool on_host = false;     // nothing lies on a device
  bool copy_first = false;  // the disk is left alone until all is copied
  std::unique_ptr<ShardWriter> shard;
  std::unique_ptr<ShardBytes> bytes;
  std::mutex order;  // of parts: held while the next one is taken and its checksums are made

  std::mutex mutex;
  std::condition_variable changed;
  bool copied = false;     // nothing is read from the tensors any more
  bool written = false;    // this rank's file and its part of the manifest are there
  bool committed = false;  // rank 0
  bool reported = false;
  bool stop = false;
  std::exception_ptr error;
  SaveReport report;
  std::thread copier, writer;

  void set(bool Job::*flag) {
    const std::lock_guard lock(mutex);
    this->*flag = true;
    changed.notify_all();
  }
  // Until the flag is set, or something failed.
  void wait(bool Job::*flag) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return this->*flag || error; });
  }
  void fail() {
    const std::lock_guard lock(mutex);
    if (!error) error = std::current_exception();
    changed.notify_all();
  }
  void join() {
    if (copier.joinable()) copier.join();
    if (writer.joinable()) writer.join();
  }
};

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

void CheckpointSaver::start_threads() {
  try {
    job_->writer =
        std::thread([this, &job = *job_] { in_threads(job, 1, [&] { write_shard(job); }); });
    job_->copier = std::thread([this, &job = *job_] { copy(job); });
  } catch (const std::system_error& error) {
    job_->fail();
    ring_->give_up();
    job_->set(&Job::copied);
    if (job_->writer.joinable()) job_->writer.join();
    job_.reset();
    throw_error(str_cat("saving into ", options_.folder.string(),
                        ": a thread cannot be started: ", error.what()));
  }
}

void CheckpointSaver::copy(Job& job) {
  // One thread copies about as fast as half the memory; a device's lane has its own engine.
  in_threads(job, job.on_host ? 2 : 1, [&] { copy_parts(job); });
  job.set(&Job::copied);
}

// f, `count` times at once, this thread's included. The first error is the job's, and ends the
// rest.
void CheckpointSaver::in_threads(Job& job, int count, const std::function<void()>& f) {
  const auto guarded = [&] {
    try {
      f();
    } catch (...) {
      job.fail();
      ring_->give_up();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < count; ++i) others.emplace_back(guarded);
  } catch (const std::system_error&) {
    // The system has no more threads: those that are there do the work.
  }
  guarded();
  for (std::thread& other : others) other.join();
}

void CheckpointSaver::copy_parts(Job& job) {
  for (Runtime* runtime : job.runtimes) runtime->backend().attach_thread();
  while (auto slot = ring_->take_empty()) {
    job.bytes->copy(slot->number * StagingRing::kSlotBytes, slot->bytes(),
                    job.copy_first ? ReadNext::later : ReadNext::soon);
    for (Runtime* runtime : job.runtimes)
      runtime->backend().wait_on_host(runtime->backend().record(StreamName::d2h));
    ring_->put_filled(std::move(slot));
  }
}

// While one thread waits for the disk another one makes checksums.
void CheckpointSaver::write_parts(Job& job) {
  while (true) {
    std::unique_ptr<StagingRing::Slot> slot;
    {
      const std::lock_guard lock(job.order);
      slot = ring_->take_filled();
      if (!slot) return;
      job.shard->account(slot->bytes());
    }
    job.shard->write_at(slot->number * StagingRing::kSlotBytes, slot->bytes());
    ring_->put_empty(std::move(slot));
  }
}

void CheckpointSaver::write_shard(Job& job) {
  const Path temporary = temporary_path(options_.folder, job.iteration);
  ShardWriter& shard = *job.shard;
  shard.open();
  if (job.copy_first) job.wait(&Job::copied);  // who is copying gets all of the memory's speed
  in_threads(job, kWriters, [&] { write_parts(job); });
  {
    const std::lock_guard lock(job.mutex);
    if (job.error || job.stop) return;
  }
  Manifest part = shard.finish();
  part.iteration = job.iteration;
  if (options_.verify) read_back(job, [&] { verify_on_disk(temporary, part); });
  if (rank() != 0) {
    // Rank 0 reads it, commits, and the folder has another name at once: nothing may be done there
    // behind the rename.
    AtomicFile file(temporary / part_name(rank()), *options_.disk);
    file.write(part.to_text());
    file.publish();
    job.set(&Job::written);
    return;
  }
  job.set(&Job::written);
  commit(job, std::move(part));
}

void CheckpointSaver::read_back(const Job& job, const std::function<void()>& check) const {
  try {
    check();
  } catch (const std::exception& error) {
    const std::optional<int64_t> kept = latest_checkpoint(options_.folder);
    throw_error(
        str_cat("--save-verify: the disk does not give back what was written: ", error.what(),
                "\n  the checkpoint of iteration ", job.iteration, " does not count; ",
                kept ? str_cat("the newest is still that of iteration ", *kept)
                     : std::string("there is none yet"),
                "\n  hint: check this disk, and save to another one"));
  }
}

// Rank 0, in the background.
void CheckpointSaver::commit(Job& job, Manifest manifest) {
  const Path temporary = temporary_path(options_.folder, job.iteration);
  for (int other = 1; other < ranks(); ++other) {
    const Path part = temporary / part_name(other);
    while (!std::filesystem::exists(part)) {
      std::unique_lock lock(job.mutex);
      if (job.changed.wait_for(lock, std::chrono::milliseconds(2), [&] { return job.stop; }))
        return;
    }
    manifest.merge(Manifest::parse(read_file(part), part.string()), part.string());
    if (options_.disk->remove(part.c_str()) != 0) throw_file_error("remove", part, errno);
  }
  manifest.info = job.info;
  manifest.check_complete(temporary.string());
  const Path manifest_file = manifest_path(temporary);
  write_file(manifest_file, manifest.to_text(), *options_.disk);
  if (options_.verify)
    read_back(job, [&] {
      drop_from_page_cache(manifest_file);
      PHX_CHECK(read_file(manifest_file) == manifest.to_text(), manifest_file.string(),
                " is not what was written");
    });
  const std::optional<int64_t> before = latest_checkpoint(options_.folder);
  commit_checkpoint(options_.folder, job.iteration, *options_.disk);
  if (options_.retain_interval && before && *before != job.iteration &&
      *before % *options_.retain_interval != 0)
    remove_checkpoint(options_.folder, *before, *options_.disk);
  job.report.seconds = seconds_since(job.start);
  job.set(&Job::committed);
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
