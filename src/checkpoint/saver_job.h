// One save on its way: what CheckpointSaver and its threads share. Not for others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "phalanx/checkpoint/saver.h"
#include "phalanx/checkpoint/shard_bytes.h"
#include "phalanx/checkpoint/shard_writer.h"
#include "phalanx/checkpoint/staging_ring.h"

namespace phx {

struct CheckpointSaver::Ring : StagingRing {};

struct CheckpointSaver::Job {
  using Clock = std::chrono::steady_clock;

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

  double seconds() const {  // since the start
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
};

}  // namespace phx
