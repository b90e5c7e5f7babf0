// Saves checkpoints of a run, each rank its boxes, in the background.
//
//   saver.begin(iteration, boxes, info, SaveMode::background);   // collective; returns at once
//   ..forward and backward of the next step..
//   saver.wait_for_copies();               // before the next update changes what is being saved
//   saver.poll();                          // now and then: throws what went wrong behind
//   saver.wait();                          // collective: the checkpoint is there
//
// Threads copy the boxes into a bounded ring of host memory; others take them from there, a part of
// the file each, with checksums, past the page cache (direct_file.h). In the background the ring
// holds as much of the state as it may; where the caller waits anyway it is a few slots, which stay
// in the processor's cache. Rank 0's writer waits for the parts of all ranks (small files in the
// temporary folder, which all ranks share), and commits. One save is under way at a time: begin()
// waits for the one before. A save that is abandoned, by an error or the destructor, leaves the
// older checkpoints as they are.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/comm/communicator.h"

namespace phx {

struct SaverOptions {
  Path folder;
  Communicator* world = nullptr;  // null: one rank
  int64_t ring_bytes = int64_t{2} << 30;
  // When a checkpoint is complete the one before goes, unless its iteration is a multiple of this.
  std::optional<int64_t> retain_interval = {};
  // Every rank reads its file back from the disk and checks it before the checkpoint counts.
  bool verify = false;
  Disk* disk = &Disk::real();
};

struct SaveReport {
  int64_t iteration = 0;
  Path path;
  int64_t bytes = 0;         // of this rank
  double seconds = 0;        // from begin() to the commit
  double stall_seconds = 0;  // that the caller spent in begin, wait_for_copies and wait
};

enum class SaveMode {
  background,  // the caller goes on, up to the next change of what is saved
  waiting,     // the caller calls wait() next
};

class CheckpointSaver {
 public:
  explicit CheckpointSaver(SaverOptions options);
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Makes the host memory of saves in the background, beside a thread of its own, so that the first
  // one finds it. Once, before the first begin().
  void reserve(const std::vector<LocalBox>& boxes);

  // `boxes` of all ranks make every tensor, each element once. `info` is rank 0's.
  void begin(int64_t iteration, std::vector<LocalBox> boxes, CheckpointInfo info,
             SaveMode mode = SaveMode::waiting);
  void wait_for_copies();
  // Throws the background's error, which names the file. On rank 0, once for every save: the report
  // when it has been committed.
  std::optional<SaveReport> poll();
  // On rank 0 the report, unless poll() has given it.
  std::optional<SaveReport> wait();
  bool busy() const { return job_ != nullptr; }

 private:
  struct Job;
  void start_threads();
  void copy(Job& job);
  void in_threads(Job& job, int count, const std::function<void()>& f);
  void copy_parts(Job& job);
  void write_parts(Job& job);
  void write_shard(Job& job);
  void read_back(const Job& job, const std::function<void()>& check) const;
  void commit(Job& job, Manifest manifest);
  void rethrow();
  int rank() const { return options_.world == nullptr ? 0 : options_.world->rank(); }
  int ranks() const { return options_.world == nullptr ? 1 : options_.world->size(); }

  SaverOptions options_;
  struct Ring;
  std::unique_ptr<Ring> ring_;
  std::thread reserver_;
  std::unique_ptr<Job> job_;
};

}  // namespace phx
