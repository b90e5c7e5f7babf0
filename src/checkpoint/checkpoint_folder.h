// A folder of checkpoints, and how one comes into it.
//
//   DIR/iter_0000100/               manifest.json and shards: a checkpoint, whole
//   DIR/iter_0000200.tmp/           one that is being written, or was when the machine stopped
//   DIR/latest_checkpointed_iteration.txt    "100"
//
// A checkpoint is written under its .tmp name, synced, and renamed; only then does the tracker name
// it, and only then may an older one go. So at every moment the tracker names a whole checkpoint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"

namespace phx {

std::string iteration_name(int64_t iteration);  // "iter_0000100"
Path checkpoint_path(const Path& folder, int64_t iteration);
Path temporary_path(const Path& folder, int64_t iteration);  // where it is written
Path manifest_path(const Path& checkpoint);

// The iteration that latest_checkpointed_iteration.txt names; nothing if there is no such file.
std::optional<int64_t> latest_checkpoint(const Path& folder);
// Where that iteration's checkpoint is: checkpoint_path, or, where the machine stopped while one
// was replaced on a file system that cannot exchange names, the replaced one.
Path find_checkpoint(const Path& folder, int64_t iteration);
// All that find_checkpoint finds, the newest first.
std::vector<int64_t> checkpoints_in(const Path& folder);

// Removes what saves that did not end have left, and makes the temporary folder.
void prepare_checkpoint(const Path& folder, int64_t iteration, Disk& disk);
// Gives the temporary folder, whose files are all there and synced, its name, and the tracker its
// number. A checkpoint that had this name before is gone afterwards, not sooner.
void commit_checkpoint(const Path& folder, int64_t iteration, Disk& disk);
// Under another name first: a checkpoint with some of its files never has a checkpoint's name.
void remove_checkpoint(const Path& folder, int64_t iteration, Disk& disk);

}  // namespace phx
