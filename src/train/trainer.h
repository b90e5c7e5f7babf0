// The loop: step, log, evaluate, save, stop.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "phalanx/base/terminal.h"
#include "phalanx/checkpoint/parts_saver.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/comm/communicator.h"
#include "phalanx/optim/schedule.h"
#include "phalanx/report/iteration_report.h"
#include "phalanx/report/metrics.h"
#include "phalanx/report/side_output.h"
#include "phalanx/report/tensorboard.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/profiler.h"
#include "phalanx/train/router_report.h"
#include "phalanx/train/run_state.h"
#include "phalanx/train/save_session.h"
#include "phalanx/train/session.h"
#include "phalanx/train/stop_signals.h"

namespace phx {

enum class RunEnd { finished, stopped_by_signal, stopped_early };

struct TrainerOptions {
  // Whether this rank catches the process's signals: every process does, on one of its ranks.
  bool catches_signals = true;
  bool answers_signals = true;  // and says so at once; one rank of each machine does
  Disk* disk = &Disk::real();   // that checkpoints are written to
  // Whether to time what a CPU can do, which takes a moment, for the MFU.
  bool measures_peak = true;
  int ranks_here = 1;             // that share this machine's memory
  bool folder_is_locked = false;  // rank 0 holds the FolderLock of --save
  // Whose fail() ends the waits of other ranks at once, so that they can save what they hold. None
  // (as under MPI): they would learn of a failure too late.
  World* world = nullptr;
  std::chrono::milliseconds parts_patience = std::chrono::seconds(30);  // see PartsOptions
};

// One rank's loop. Ranks decide alike: what they decide by is the same on all of them, or was
// exchanged with the step's results.
class Trainer {
 public:
  Trainer(Session& session, Terminal& terminal, const TrainerOptions& options = {});

  // Trains to the end (or evaluates only, with --skip-train). Throws on a loss that is not finite,
  // on data that cannot be read, and on whatever else goes wrong; where the state is sound and can
  // be saved, it is saved first.
  RunEnd run();

  const RunState& state() const { return state_; }
  double last_loss() const { return last_loss_; }

 private:
  using Clock = std::chrono::steady_clock;

  void load();
  void open_side_outputs();
  RunEnd train();
  void iterate();
  void collect_until(int pending);
  void take(const StepResults& results);
  void stop_on_nonfinite(const StepResults& results);
  // Saves the state after the last good iteration if it can, and says what is kept where.
  std::string save_before_leaving();
  [[noreturn]] void leave_without_data(const UnreadData& unread);
  [[noreturn]] void leave_after(const std::exception& error);
  // Of ranks that are copies of each other, one that is left saves for all.
  void save_own_copy();
  // Of ranks that hold parts of the state, each writes its own, and rank 0 joins them.
  void agree_on_parts();  // collective, when a run begins
  void save_own_part(const std::exception& error);
  std::string unfit_for_parts() const;
  PartsOptions parts_options() const;
  void join_parts(PartsSaver& saver);
  IterationReport make_report();
  void look_at_tallies();
  void add_tallies(IterationReport& report) const;
  void report();
  void update_bar();
  void validate(std::optional<BatchLoader>& batches, const std::string& where);
  bool evaluates() const { return config_.eval_interval.has_value() && config_.eval_iters > 0; }
  bool saves() const { return !session_.config.train.save.empty(); }
  SaverOptions saver_options(Communicator* world) const;
  void make_saver();
  void save();         // returns when the checkpoint is there, or with --async-save at once
  void finish_save();  // a checkpoint that is being written is there
  void save_hf();      // the checkpoint just saved, as a Hugging Face folder
  void say_saved(const std::optional<SaveReport>& report);
  std::optional<RunEnd> time_to_stop();
  void say_kernels();
  void say_memory();
  void say_divergence();
  bool alone() const { return session_.mesh.size() == 1; }
  bool speaks() const { return session_.mesh.rank() == 0; }  // writes logs and files
  int caught() const { return signals_ ? signals_->caught() : 0; }
  bool out_of_time() const;
  double stop_vote() const;
  double measured_seconds();
  double samples_per_second();

  Session& session_;
  Terminal& terminal_;
  const TrainConfig& config_;
  ScheduleLengths lengths_;
  LossScaler scaler_;
  RunState state_;        // of what was collected
  int64_t enqueued_ = 0;  // iterations handed to the device
  int64_t last_saved_ = -1;
  int64_t iterations_ = 0;

  std::optional<StopSignals> signals_;
  double stop_votes_ = 0;      // of the last collected step
  std::exception_ptr unread_;  // this rank's, of a batch that could not be read
  // Not when an error leaves the state sound: while weights change, and while a checkpoint is
  // written.
  bool updating_ = false, saving_ = false;
  std::optional<SideOutput<TensorBoardWriter>> tensorboard_;
  std::optional<SideOutput<MetricsFile>> metrics_;
  std::optional<ProgressBar> bar_;
  // Sums of squared lengths, of all ranks: of the steps under way, and since the last line.
  std::deque<int64_t> squared_lengths_;
  int64_t interval_squared_lengths_ = 0;
  std::optional<double> peak_flops_;

  Clock::time_point start_, interval_start_;
  double interval_loss_ = 0;  // sum over good iterations since the last line
  int64_t interval_good_ = 0, interval_all_ = 0, interval_skipped_ = 0, interval_nan_ = 0;
  int64_t interval_samples_ = 0;
  int64_t last_batch_ = 0;  // samples of the last collected iteration
  // Of iteration tallies_at_, which is reported.
  std::optional<RouterReports> routers_;
  std::vector<double> losses_ahead_;
  int64_t tallies_at_ = 0;
  double last_loss_ = 0, last_grad_norm_ = 0, tokens_per_second_ = 0;
  int64_t last_good_ = 0;  // iteration of this run whose update was made; 0: none yet
  Path loaded_path_;
  Disk& disk_;
  bool measures_peak_;
  int ranks_here_;
  bool folder_is_locked_;
  World* world_;
  std::chrono::milliseconds parts_patience_;
  std::string parts_run_;  // names this run to its ranks; empty: they save no parts
  std::optional<CheckpointSaver> saver_;
  Profiler profiler_;
};

// FLOP/s that the device could do in the model's precision, if known; on a CPU measured for a
// moment.
std::optional<double> peak_flops(Device device, DType dtype);

}  // namespace phx
