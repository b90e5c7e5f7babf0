// One file of a checkpoint: a safetensors file whose tensors are pieces of global tensors, written
// front to back, with the checksum of every block taken on the way. A piece that is all of its
// tensor has the tensor's name; a part of one has its box behind the name: "weight[0:64, 0:32]".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/manifest.h"

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

  int64_t bytes() const { return bytes_; }  // of all pieces
  // The next bytes of the pieces, which follow one another; calls may end anywhere.
  void write(std::span<const std::byte> bytes);
  // The file is there and synced; returns its part of the manifest.
  Manifest finish();

 private:
  struct Hashing;
  std::vector<PieceToWrite> pieces_;
  int64_t bytes_ = 0;
  Manifest part_;
  std::vector<SavedPiece> saved_;  // of pieces_
  std::unique_ptr<AtomicFile> file_;
  std::unique_ptr<Hashing> hashing_;
};

}  // namespace phx
