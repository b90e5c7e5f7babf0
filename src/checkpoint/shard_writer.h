// One file of a checkpoint: a safetensors file whose tensors are pieces of global tensors, with the
// checksum of every block taken on the way. A piece that is all of its tensor has the tensor's
// name; a part of one has its box behind the name: "weight[0:64, 0:32]".
//
// Front to back:        shard.open(); shard.write(..); shard.write(..); shard.finish();
// By several threads:   shard.open(); {account(..) in order, write_at(..) in any}; shard.finish();
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "phalanx/checkpoint/direct_file.h"
#include "phalanx/checkpoint/manifest.h"

namespace phx {

struct PieceToWrite {
  std::string name;
  TensorInfo info;  // of the global tensor
  Box box;
};

class ShardWriter {
 public:
  // No pieces: no file.
  ShardWriter(const Path& folder, const std::string& file_name, std::vector<PieceToWrite> pieces,
              Disk& disk = Disk::real());
  ~ShardWriter();

  const std::string& header() const { return header_; }  // which the pieces follow
  int64_t bytes() const;                                 // of the file

  void open();
  // The next bytes of the pieces, which follow one another; calls may end anywhere.
  void write(std::span<const std::byte> bytes);

  // The next bytes of the file, header and all, for the checksums.
  void account(std::span<const std::byte> bytes);
  // Bytes of the file; any thread.
  void write_at(int64_t offset, std::span<const std::byte> bytes);

  // The file is there and synced; returns its part of the manifest.
  Manifest finish();

 private:
  struct Hashing;
  Path path_;
  Disk& disk_;
  std::string header_;
  std::vector<PieceToWrite> pieces_;
  Manifest part_;
  std::vector<SavedPiece> saved_;  // of pieces_
  std::unique_ptr<DirectFile> file_;
  std::unique_ptr<Hashing> hashing_;
  std::atomic<int64_t> written_{0};
};

}  // namespace phx
