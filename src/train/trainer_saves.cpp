// How the loop saves: its saver and the memory of that, checkpoints, Hugging Face folders, and what
// one rank can save when others are lost.
#include <chrono>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/folder_lock.h"
#include "phalanx/comm/machine_limits.h"
#include "phalanx/train/save_buffer.h"
#include "phalanx/train/trainer.h"

namespace phx {

SaverOptions Trainer::saver_options(Communicator* world) const {
  return {.folder = config_.save,
          .world = world,
          .retain_interval = config_.save_retain_interval,
          .verify = config_.save_verify,
          .disk = &disk_};
}

// The memory of asynchronous saves is made while the first steps run.
void Trainer::make_saver() {
  const std::vector<LocalBox> boxes = boxes_to_save(session_);
  int64_t state = 0;
  for (const LocalBox& box : boxes) state += box.bytes();
  SaveBuffer buffer =
      save_buffer(state, machine_limits().memory, ranks_here_,
                  session_.store.weights().device().kind() == DeviceKind::cpu ? ComputesOn::host
                                                                              : ComputesOn::device);
  if (config_.save_buffer_mib) buffer.bytes = *config_.save_buffer_mib << 20;
  SaverOptions options = saver_options(session_.mesh.world());
  options.ring_bytes = buffer.bytes;
  saver_.emplace(options);
  if (!config_.async_save) return;
  terminal_.print(buffer.text());
  saver_->reserve(boxes);
}

void Trainer::save() {
  session_.data_parallel.wait_for_weights();
  finish_save();
  saving_ = true;
  saver_->begin(state_.iteration, boxes_to_save(session_), info_to_save(session_, state_),
                config_.async_save ? SaveMode::background : SaveMode::waiting);
  last_saved_ = state_.iteration;
  saving_ = false;
  const bool hf = config_.save_hf_interval && state_.iteration % *config_.save_hf_interval == 0;
  if (!config_.async_save || hf) finish_save();
  if (hf) save_hf();
}

// From the files, so that it does not matter which rank holds what.
void Trainer::save_hf() {
  if (!speaks()) return;
  const auto start = Clock::now();
  const Path folder = hf_folder_of(config_.save, state_.iteration);
  try {
    export_session(folder, session_.config, state_.iteration);
  } catch (const std::exception& error) {  // the checkpoint is there, and can be exported later
    log_warning(str_cat("--save-hf-interval: ", error.what(),
                        "\n  the run goes on; `phalanx convert ",
                        "export` makes the folder from the checkpoint"));
    return;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  terminal_.print(str_cat("wrote ", folder.string(), " in ", format_duration(seconds)));
}

void Trainer::finish_save() {
  if (!saver_) return;
  saving_ = true;
  say_saved(saver_->wait());
  saving_ = false;
}

void Trainer::say_saved(const std::optional<SaveReport>& report) {
  if (!report) return;
  const std::string took = format_duration(report->seconds);
  terminal_.print(str_cat("saved ", report->path.string(), ": ", format_bytes(report->bytes),
                          " a rank in ", took,
                          config_.async_save ? str_cat(" in the background; the loop stalled for ",
                                                       format_duration(report->stall_seconds))
                                             : ""));
}

namespace {

// Rank 0 holds the lock during the run. The others get it when rank 0 is dead, which the system may
// notice a moment after its connections closed.
std::unique_ptr<FolderLock> lock_of_dead_rank(const Path& folder) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (true) {
    try {
      return std::make_unique<FolderLock>(folder);
    } catch (const std::exception&) {
      if (std::chrono::steady_clock::now() > end) return nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

}  // namespace

// Not on GPUs: updates that were enqueued behind a failed exchange may have run.
void Trainer::save_own_copy() {
  const bool on_cpu = session_.store.weights().device().kind() == DeviceKind::cpu;
  if (!saves() || last_good_ == 0 || !on_cpu || session_.step.pending() > 0 ||
      !holds_whole_state(session_))
    return;
  try {
    saver_.reset();  // a save that waits for other ranks is given up
    std::unique_ptr<FolderLock> lock;
    if (!speaks() || !folder_is_locked_) {
      lock = lock_of_dead_rank(config_.save);
      if (!lock) return;
    }
    // Another copy may have saved, and may have been one update ahead when the error came.
    const int64_t latest = latest_checkpoint(config_.save).value_or(0);
    if (latest == state_.iteration || latest == state_.iteration + 1) return;
    CheckpointSaver saver(saver_options(/*world=*/nullptr));
    saver.begin(state_.iteration, boxes_to_save(session_, SavedBy::this_rank),
                info_to_save(session_, state_));
    saver.wait();
    log_warning(str_cat("the last good state is iteration ", state_.iteration, ", saved in ",
                        checkpoint_path(config_.save, state_.iteration).string(), " by rank ",
                        session_.mesh.rank(), ", which holds all of it"));
  } catch (const std::exception& second) {
    log_warning(str_cat("the state of iteration ", state_.iteration,
                        " could not be saved: ", second.what()));
  }
}

}  // namespace phx
