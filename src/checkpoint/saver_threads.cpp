// What the threads of a save do: copy out of the tensors, write, and on rank 0 commit.
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver_job.h"
#include "phalanx/checkpoint/shard_reader.h"

namespace phx {
namespace {

constexpr int kWriters = 4;  // one leaves a fast disk waiting between two parts

std::string part_name(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank_%05d.part", rank);
  return name;
}

}  // namespace

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
  job.report.seconds = job.seconds();
  job.set(&Job::committed);
}

}  // namespace phx
