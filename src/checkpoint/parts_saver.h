// A checkpoint of ranks that cannot talk to each other any more: one of them failed, and all groups
// are broken. Every rank writes its part into one folder beside the checkpoints, without a
// collective; rank 0 looks at that folder, and makes a checkpoint of it if the parts of all ranks
// are there and belong together.
//
//   DIR/iter_parts-<run>.tmp/
//     rank_00001.state            what this rank says of its state: iteration, ranks, run
//     shard_00001.safetensors     its part
//     rank_00001.part             its part of the manifest, with checksums: written last
//
// The name is that of something incomplete, so the next save removes what a killed run left here.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/checkpoint/parameter_boxes.h"

namespace phx {

struct PartsOptions {
  Path folder;
  std::string run;  // the same on all ranks of a run, and different for every run
  int rank = 0, ranks = 1;
  // How long rank 0 waits for the parts of others when its own is written.
  std::chrono::milliseconds patience = std::chrono::seconds(30);
  // Asked every few milliseconds while this rank waits: whether to stop waiting.
  std::function<bool()> stop = [] { return false; };
  bool verify = false;  // every rank reads its file back
  Disk* disk = &Disk::real();
};

Path parts_path(const Path& folder, const std::string& run);

// What a rank says of its state: it is exactly that of `iteration`; or why it is not ("had begun
// the update of iteration 6").
struct RankState {
  int64_t iteration = 0;
  std::string unfit = {};
};

class PartsSaver {
 public:
  explicit PartsSaver(PartsOptions options);

  // This rank's word, which the others need to decide; before write().
  void say(const RankState& state);
  // This rank's part, whose memory is on the host.
  void write(const std::vector<LocalBox>& boxes);

  // Rank 0, whatever its own state is. Returns what is missing: nothing if the checkpoint was
  // made. Otherwise the folder is removed.
  std::string join(const CheckpointInfo& info);
  // The other ranks: until rank 0 has decided, or twice the patience is over.
  void wait_for_join();

 private:
  std::string problems(bool all) const;
  bool has_all_parts() const;
  void commit(const CheckpointInfo& info);
  void remove_own();

  PartsOptions options_;
  Path path_;
  RankState own_;
  bool written_ = false;
};

}  // namespace phx
