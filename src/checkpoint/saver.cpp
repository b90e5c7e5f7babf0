#include "checkpoint/saver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard_writer.h"
#include "checkpoint/staging_ring.h"

namespace phx {

namespace {

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
  bool in_place = false;  // nothing is copied aside

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
  if (!job_) return;
  job_->set(&Job::stop);
  ring_->give_up();
  job_->join();
}

void CheckpointSaver::begin(int64_t iteration, std::vector<LocalBox> boxes, CheckpointInfo info,
                            SaveMode mode) {
  wait();
  const Clock::time_point start = Clock::now();
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
  const std::set<Runtime*> runtimes = runtimes_of(job->boxes);
  // A rank may have nothing to write: all that it holds may be copies of what others write.
  job->in_place = job->boxes.empty() || (mode == SaveMode::waiting &&
                                         std::ranges::all_of(runtimes, [](const Runtime* runtime) {
                                           return runtime->kind() == DeviceKind::cpu;
                                         }));
  if (!job->in_place)
    ring_->make_room(job->boxes[0].flat.runtime().backend(), job->report.bytes,
                     options_.ring_bytes);
  // Copies come behind what the devices have been told to compute so far.
  for (Runtime* runtime : runtimes)
    runtime->stream(StreamName::d2h).wait(runtime->stream(StreamName::compute).record());
  job_ = std::move(job);
  if (!job_->in_place)
    job_->copier = std::thread([this, &job = *job_] {
      try {
        copy_boxes(job);
      } catch (...) {
        job.fail();
      }
      ring_->end();
      job.set(&Job::copied);
    });
  job_->writer = std::thread([this, &job = *job_] {
    try {
      write_shard(job);
    } catch (...) {
      job.fail();
      ring_->give_up();
    }
  });
  job_->stall += seconds_since(start);
}

// Into slots, row after row; a slot may hold many small boxes or a part of a large one.
void CheckpointSaver::copy_boxes(Job& job) {
  const std::set<Runtime*> runtimes = runtimes_of(job.boxes);
  for (Runtime* runtime : runtimes) runtime->backend().attach_thread();
  std::unique_ptr<StagingRing::Slot> slot;
  const auto hand_over = [&] {
    if (!slot) return;
    for (Runtime* runtime : runtimes)
      runtime->backend().wait_on_host(runtime->backend().record(StreamName::d2h));
    ring_->put_filled(std::move(slot));
  };
  for (const LocalBox& box : job.boxes) {
    Backend& backend = box.flat.runtime().backend();
    const int64_t element = size_of(box.info.dtype);
    const bool dense = box.cols == box.pitch || box.rows == 1;
    const int64_t rows = dense ? 1 : box.rows, row_bytes = box.bytes() / rows;
    for (int64_t row = 0; row < rows; ++row) {
      const std::byte* from =
          static_cast<const std::byte*>(box.flat.raw()) + (box.offset + row * box.pitch) * element;
      for (int64_t done = 0; done < row_bytes;) {
        if (slot && slot->used == StagingRing::kSlotBytes) hand_over();
        if (!slot) slot = ring_->take_empty();
        if (!slot) return;  // given up
        const int64_t count = std::min(row_bytes - done, StagingRing::kSlotBytes - slot->used);
        backend.copy_to_host(slot->bytes(slot->used, count).data(), from + done, count,
                             StreamName::d2h);
        slot->used += count;
        done += count;
      }
    }
  }
  hand_over();
}

// Straight from the tensors; rows that are short are put together first, so that writes are large.
void CheckpointSaver::write_in_place(const Job& job, ShardWriter& shard) {
  constexpr size_t kShort = 1 << 20, kLarge = 8 << 20;
  std::vector<std::byte> together;
  together.reserve(kLarge);
  const auto flush = [&] {
    shard.write(together);
    together.clear();
  };
  for (const LocalBox& box : job.boxes) {
    const int64_t element = size_of(box.info.dtype);
    const bool dense = box.cols == box.pitch || box.rows == 1;
    const int64_t rows = dense ? 1 : box.rows;
    const size_t row_bytes = size_t(box.bytes() / rows);
    for (int64_t row = 0; row < rows; ++row) {
      const auto* from =
          static_cast<const std::byte*>(box.flat.raw()) + (box.offset + row * box.pitch) * element;
      if (row_bytes >= kShort || together.size() + row_bytes > kLarge) flush();
      if (row_bytes < kShort) {
        together.insert(together.end(), from, from + row_bytes);
        continue;
      }
      for (size_t at = 0; at < row_bytes; at += kLarge)
        shard.write({from + at, std::min(kLarge, row_bytes - at)});
    }
  }
  flush();
}

void CheckpointSaver::write_shard(Job& job) {
  const Path temporary = temporary_path(options_.folder, job.iteration);
  std::vector<PieceToWrite> pieces;
  for (const LocalBox& box : job.boxes) pieces.push_back({box.name, box.info, box.box});
  ShardWriter shard(temporary, shard_name(rank()), std::move(pieces), *options_.disk);
  if (job.in_place) {
    write_in_place(job, shard);
    job.set(&Job::copied);
  }
  while (auto slot = job.in_place ? nullptr : ring_->take_filled()) {
    shard.write(slot->bytes(0, slot->used));
    ring_->put_empty(std::move(slot));
  }
  {
    const std::lock_guard lock(job.mutex);
    if (job.error || job.stop) return;
  }
  Manifest part = shard.finish();
  part.iteration = job.iteration;
  if (rank() != 0) {
    write_file(temporary / part_name(rank()), part.to_text(), *options_.disk);
    job.set(&Job::written);
    return;
  }
  job.set(&Job::written);
  commit(job, std::move(part));
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
  write_file(manifest_path(temporary), manifest.to_text(), *options_.disk);
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
