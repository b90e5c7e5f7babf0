// A native checkpoint as a source of tensors. Opening it reads the manifest and looks at the sizes
// of all files; every block that is read later is checked against its checksum. So what comes out
// is what went in, or an error that names the file.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

class ShardReader;

// Who reads the same bytes on this machine, about now. Those that one process alone reads come past
// the page cache, where they are not in it and the file system lets them: a copy less. Those that
// several read come from the disk once, and through the page cache.
enum class Readers { one, many };

class NativeCheckpoint : public TensorSource {
 public:
  // `path`: an iter_* folder.
  explicit NativeCheckpoint(const Path& path, Readers readers = Readers::many);
  ~NativeCheckpoint() override;

  const TensorInfos& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

  const Path& path() const { return path_; }
  int64_t iteration() const { return manifest_.iteration; }
  const Manifest& manifest() const { return manifest_; }
  // A text of JSON; an error that names the checkpoint if it says nothing of the kind.
  const std::string& info(const std::string& key) const;
  int64_t bytes() const;  // of all files

  // That were taken from files so far, the manifest aside.
  int64_t bytes_read() const { return bytes_read_; }

  // Reads every byte and checks it. An error names the file and the tensor.
  void verify() const;

 private:
  const ShardReader& shard(int64_t file) const;
  void read_piece(const std::string& name, const TensorInfo& info, const SavedPiece& piece,
                  const Box& box, std::span<std::byte> out) const;

  Path path_;
  Readers readers_;
  Manifest manifest_;
  TensorInfos infos_;
  mutable std::atomic<int64_t> bytes_read_{0};
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<ShardReader>> shards_;  // opened when first read from
};

// Whether the folder is a native checkpoint: one that has a manifest, good or bad.
bool is_native_checkpoint(const Path& path);

// The newest checkpoint of a folder that verify() finds nothing wrong with; `why_not` says of each
// newer one what is. Nothing if there is none.
std::optional<int64_t> newest_valid_checkpoint(const Path& folder,
                                               std::vector<std::string>& why_not);

// Which checkpoint of a folder to load: the one that the tracker names. Where the tracker is
// missing beside checkpoints, the newest one that is complete (its files are there with their
// sizes), and `warning` says so: nobody begins anew over checkpoints because a small file was lost.
// Nothing if there is none; throws if the tracker names one that is not there, or if none is
// complete.
struct CheckpointToLoad {
  int64_t iteration = 0;
  std::string warning = {};
};
std::optional<CheckpointToLoad> checkpoint_to_load(const Path& folder);

// Reads every block of every file of the manifest from `folder`, past the page cache where the
// system lets us, and throws on the first that is not what was written.
void verify_on_disk(const Path& folder, const Manifest& manifest);

}  // namespace phx
