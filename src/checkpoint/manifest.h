// manifest.json of a native checkpoint: which tensors there are, which box of which lies where in
// which file, and checksums of all of it. A folder without a manifest that is whole is no
// checkpoint.
//
//   {"xxh3": "<16 hex digits: of the bytes of "checkpoint">", "checkpoint": {
//     "format": "phalanx-2", "iteration": 100, "block_bytes": 1048576,
//     "files": [{"name": "shard_00000.safetensors", "bytes": .., "header_bytes": .., "xxh3":
//     ".."}], "tensors": {"decoder.final_layernorm.weight": {"dtype": "BF16", "shape": [1024],
//     "pieces": [
//       {"file": 0, "offset": 4096, "begin": [0], "size": [1024], "xxh3": [".."]}]}, ..},
//     "info": {"options": {..}, "state": {..}, ..}}}
//
// A piece lies row-major at `offset` of its file; its checksums are those of blocks of block_bytes
// from its first byte on, so that a part of it can be read and checked without the rest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

inline constexpr int64_t kBlockBytes = 1 << 20;

struct ShardFile {
  std::string name;  // within the checkpoint's folder
  int64_t bytes = 0;
  int64_t header_bytes = 0;  // of the safetensors header, with its length
  uint64_t header_hash = 0;
};

struct SavedPiece {
  int64_t file = 0;  // index into Manifest::files
  int64_t offset = 0;
  Box box;
  std::vector<uint64_t> hashes;  // a block each
};

struct SavedTensor {
  TensorInfo info;
  std::vector<SavedPiece> pieces;
};

// What a checkpoint says beside its tensors, as texts of JSON: "options", "state", "tokenizer"...
using CheckpointInfo = std::map<std::string, std::string>;

struct Manifest {
  int64_t iteration = 0;
  int64_t block_bytes = kBlockBytes;
  std::vector<ShardFile> files;
  std::map<std::string, SavedTensor> tensors;
  CheckpointInfo info;

  std::string to_text() const;
  // Trusts nothing: whatever a reader relies on has been checked, but for check_complete. `where`
  // names the file in errors.
  static Manifest parse(std::string_view text, const std::string& where);
  // Only what is inside of "checkpoint", without its checksum.
  static Manifest parse_body(std::string_view body, const std::string& where);

  // Another rank's files and pieces of the same save.
  void merge(Manifest other, const std::string& where);
  // Throws unless the pieces of every tensor are all of it, each element once.
  void check_complete(const std::string& where) const;
};

int64_t piece_bytes(const TensorInfo& info, const Box& box);
uint64_t xxh3(std::span<const std::byte> bytes);

// The same of bytes that come one after the other.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  void begin();
  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace phx
