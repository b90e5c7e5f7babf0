#include "phalanx/checkpoint/load_memory.h"

#include "phalanx/base/math.h"
#include "phalanx/checkpoint/loader.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/checkpoint/shard_reader.h"

namespace phx {

namespace {

// Measured on manifests of 50,000 to 400,000 pieces with 1 to 20 blocks each: the text, its JSON
// and what is made of it take up to 1,070 bytes a piece and 137 a block.
constexpr int64_t kBytesOfPiece = 1300, kBytesOfBlock = 150;

// Beside a chunk in the state's type: the same elements in the source's type (f32 for a bf16
// state: twice a chunk), and in between as floats or transposed (twice a chunk, too).
constexpr int64_t kImportChunks = 4;

}  // namespace

ListedPieces listed_pieces(std::span<const LocalBox> boxes) {
  ListedPieces listed;
  for (const LocalBox& box : boxes) {
    ++listed.pieces;
    listed.blocks += ceil_div(box.bytes(), kBlockBytes);
  }
  return listed;
}

int64_t most_manifest_memory(const ListedPieces& of_all_ranks) {
  return of_all_ranks.pieces * kBytesOfPiece + of_all_ranks.blocks * kBytesOfBlock;
}

int64_t most_read_memory(DeviceKind device, LoadFrom from) {
  // A cpu device reads into place, but for a matrix of which it has columns only.
  const int64_t buffers = device == DeviceKind::cuda ? 2 : 1;
  int64_t bytes = buffers * kLoadChunkBytes;
  bytes +=
      from == LoadFrom::native ? kBlockBytes + kDirectReadBytes : kImportChunks * kLoadChunkBytes;
  return kLoadReaders * bytes;
}

}  // namespace phx
