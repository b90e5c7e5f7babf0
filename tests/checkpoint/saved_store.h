// Saves of the store of checkpoint_model.h, for tests of the saver.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_model.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver.h"

namespace phx::testing {

inline std::vector<LocalBox> boxes(CutStore& cut, int rank = 0) {
  const FlatRange all = cut.store.all();
  return boxes_of(cut.store, cut.states()[0], {&all, 1},
                  [&](const Parameter& p) { return rank == 0 || p.name() != "vector.bias"; });
}

inline std::map<std::string, std::vector<std::byte>> saved_bytes(const Path& folder,
                                                                 int64_t iteration) {
  const NativeCheckpoint checkpoint(checkpoint_path(folder, iteration));
  checkpoint.verify();
  return all_bytes(checkpoint);
}

// Saves weights of this seed as this iteration.
inline void save(const Path& folder, int64_t iteration, uint64_t seed, Disk& disk = Disk::real(),
                 SaveMode mode = SaveMode::background) {
  Runtime runtime({.threads = 1});
  CutStore cut(runtime.device(), seed);
  CheckpointSaver saver({.folder = folder, .disk = &disk});
  saver.begin(iteration, boxes(cut), {}, mode);
  saver.wait();
}

}  // namespace phx::testing
