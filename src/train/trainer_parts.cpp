// What ranks that hold parts of the state save when one of them fails (checkpoint/parts_saver.h).
#include <charconv>
#include <cstdio>
#include <optional>
#include <random>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/folder_lock.h"
#include "phalanx/train/trainer.h"

namespace phx {

namespace {

// "rank 3 on node7 died: its connection closed": what waits throw when a process is gone.
std::optional<int> rank_that_died(std::string_view why) {
  constexpr std::string_view kRank = "rank ";
  if (!why.starts_with(kRank)) return std::nullopt;
  why.remove_prefix(kRank.size());
  int rank = 0;
  const auto parsed = std::from_chars(why.data(), why.data() + why.size(), rank);
  if (parsed.ec != std::errc()) return std::nullopt;
  why.remove_prefix(size_t(parsed.ptr - why.data()));
  // Words of a rank that failed may quote anything.
  if (why.starts_with(" failed") || why.find(" died: ") == std::string_view::npos)
    return std::nullopt;
  return rank;
}

std::string what_remains(const Path& save) {
  try {
    if (const auto latest = latest_checkpoint(save))
      return str_cat("the last checkpoint is still that of iteration ", *latest);
    return "there is no checkpoint yet";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

// Not on GPUs: an update that was enqueued behind a failed exchange may have run.
void Trainer::agree_on_parts() {
  const Tensor& weights = session_.store.weights();
  if (alone() || world_ == nullptr || weights.device().kind() != DeviceKind::cpu ||
      holds_whole_state(session_))
    return;
  Tensor number = zeros({1}, DType::f64, weights.device());
  if (speaks()) {
    std::random_device random;
    number.data<double>()[0] = double((uint64_t{random()} << 20 ^ random()) & ((1ULL << 52) - 1));
  }
  session_.mesh.world()->broadcast(number, 0, weights.runtime().stream(StreamName::compute));
  char name[20];
  std::snprintf(name, sizeof name, "%013llx",
                static_cast<unsigned long long>(to_values(number)[0]));
  parts_run_ = name;
}

PartsOptions Trainer::parts_options() const {
  return {.folder = config_.save,
          .run = parts_run_,
          .rank = session_.mesh.rank(),
          .ranks = session_.mesh.size(),
          .patience = parts_patience_,
          .stop =
              [this, before = caught()] {
                try {
                  world_->check();  // sends what fail() left to be sent
                } catch (const std::exception&) {
                  // The failure that brought us here.
                }
                return caught() != before;
              },
          .verify = config_.save_verify,
          .disk = &disk_};
}

// Why this rank's weights and optimizer state are not those after state_.iteration; empty: they
// are. Only the update changes them, and it begins when the scalars of all ranks are summed.
std::string Trainer::unfit_for_parts() const {
  if (updating_) return str_cat("had begun the update of iteration ", enqueued_ + 1);
  if (session_.step.pending() > 0)
    return str_cat("had not read the results of iteration ", state_.iteration + 1);
  if (saving_) return "failed while it saved";
  return {};
}

void Trainer::save_own_part(const std::exception& error) {
  if (last_good_ == 0) return;
  // The others need not wait for this rank, which is not in its step any more.
  world_->fail(error.what());
  if (const auto dead = rank_that_died(error.what())) {
    if (session_.mesh.rank() == (*dead == 0 ? 1 : 0))
      log_warning(str_cat("the state of iteration ", state_.iteration, " is not saved: rank ",
                          *dead, " died, and its part of the state with it; ",
                          what_remains(config_.save)));
    return;
  }
  try {
    saver_.reset();  // a save that waits for other ranks is given up
    if (last_saved_ == state_.iteration && latest_checkpoint(config_.save) == state_.iteration) {
      if (speaks())
        log_warning(str_cat("the last good state is iteration ", state_.iteration, ", saved in ",
                            checkpoint_path(config_.save, state_.iteration).string()));
      return;
    }
    const PartsOptions options = parts_options();
    options.stop();
    PartsSaver saver(options);
    RankState own{.iteration = state_.iteration, .unfit = unfit_for_parts()};
    saver.say(own);
    if (own.unfit.empty()) {
      try {
        saver.write(boxes_to_save(session_));
      } catch (const std::exception& second) {
        own.unfit = str_cat("could not write its part: ", second.what());
        saver.say(own);
      }
    }
    if (speaks())
      join_parts(saver);
    else
      saver.wait_for_join();
  } catch (const std::exception& second) {
    log_warning(str_cat("rank ", session_.mesh.rank(), "'s part of the state of iteration ",
                        state_.iteration, " could not be saved: ", second.what(), "; ",
                        what_remains(config_.save)));
  }
}

// Under the lock of --save, which rank 0 holds all the time.
void Trainer::join_parts(PartsSaver& saver) {
  std::optional<FolderLock> lock;
  if (!folder_is_locked_) lock.emplace(config_.save);
  log_warning(str_cat(
      "a rank failed: waiting up to ", std::chrono::duration<double>(parts_patience_).count(),
      " s until all ranks have written their parts of the state of iteration ", state_.iteration));
  const std::string missing = saver.join(info_to_save(session_, state_));
  if (missing.empty()) {
    log_warning(str_cat("the last good state is iteration ", state_.iteration, ", saved in ",
                        checkpoint_path(config_.save, state_.iteration).string(), ": each of the ",
                        session_.mesh.size(), " ranks wrote its part"));
    return;
  }
  log_warning(str_cat("the state of iteration ", state_.iteration, " is not saved: ", missing, "; ",
                      what_remains(config_.save)));
}

}  // namespace phx
