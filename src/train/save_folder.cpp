#include "phalanx/train/save_folder.h"

#include <filesystem>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"

namespace phx {

namespace {

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code missing;
  return !a.empty() && !b.empty() && std::filesystem::equivalent(a, b, missing);
}

// Why the run does not go on from its own folder; empty if it does.
std::string why_it_begins_elsewhere(const TrainConfig& train) {
  if (train.load.empty()) return "there is no --load";
  if (!same_folder(train.load, train.save)) return str_cat("--load is ", train.load);
  return train.finetune ? "--finetune begins at iteration 0" : "";
}

}  // namespace

std::string resume_from_save_folder(TrainConfig& train) {
  if (!train.auto_resume || train.save.empty() || train.skip_train) return "";
  const std::vector<int64_t> there = checkpoints_in(train.save);  // the newest first
  // A tracker without checkpoints: loading says what is wrong. It never means to begin anew.
  if (there.empty() && !latest_checkpoint(train.save)) return "";
  train.load = train.save;
  train.load_optim = true;
  train.finetune = false;
  train.ckpt_step.reset();
  std::string line = str_cat("--auto-resume: the run goes on from ", train.save);
  if (train.load_newest_valid) return line;
  for (const int64_t iteration : there) {
    try {
      const NativeCheckpoint whole(find_checkpoint(train.save, iteration));  // looks at all files
      if (iteration != there.front()) train.ckpt_step = iteration;
      return str_cat(line, ", iteration ", iteration);
    } catch (const Error& error) {
      line += str_cat(" (passed over: ", error.what(), ")");
    }
  }
  return line;
}

void check_save_folder(const TrainConfig& train) {
  if (train.save.empty() || train.skip_train || train.save_into_used_folder) return;
  const std::vector<int64_t> there = checkpoints_in(train.save);  // the newest first
  const std::string why = why_it_begins_elsewhere(train);
  if (there.empty() || why.empty()) return;
  throw_error(str_cat("--save ", train.save, " holds the checkpoints of another run (",
                      there.size() == 1 ? "" : str_cat(there.size(), ", the newest of "),
                      "iteration ", there.front(), "), but ", why,
                      ": this run would write over them\n  hint: --load ", train.save,
                      train.finetune ? " without --finetune" : "",
                      " goes on from there; another --save keeps the two apart; "
                      "--save-into-used-folder begins anew in the same folder"));
}

}  // namespace phx
