#include "checkpoint/shard_writer.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace phx {

namespace {

std::string tensor_name(const PieceToWrite& piece) {
  if (piece.box == whole_box(piece.info.shape)) return piece.name;
  std::string name = piece.name + "[";
  for (size_t i = 0; i < piece.box.begin.size(); ++i)
    name +=
        str_cat(i > 0 ? ", " : "", piece.box.begin[i], ":", piece.box.begin[i] + piece.box.size[i]);
  return name + "]";
}

}  // namespace

// Where in the pieces the next byte is, and the checksum of its block so far.
struct ShardWriter::Hashing {
  size_t piece = 0;
  int64_t left_in_piece = 0, left_in_block = 0;
  Xxh3 hash;
};

ShardWriter::ShardWriter(const Path& folder, const std::string& file_name,
                         std::vector<PieceToWrite> pieces, Disk& disk)
    : pieces_(std::move(pieces)), hashing_(std::make_unique<Hashing>()) {
  if (pieces_.empty()) return;
  std::vector<SafetensorsEntry> entries;
  for (const PieceToWrite& piece : pieces_)
    entries.push_back({tensor_name(piece), safetensors_dtype(piece.info.dtype), piece.box.size});
  const Path path = folder / file_name;
  const std::string header = safetensors_header(path, entries);
  const int64_t header_bytes = int64_t(header.size());
  for (const PieceToWrite& piece : pieces_) {
    saved_.push_back({.file = 0, .offset = header_bytes + bytes_, .box = piece.box, .hashes = {}});
    bytes_ += piece_bytes(piece.info, piece.box);
  }
  part_.files.push_back({.name = file_name,
                         .bytes = header_bytes + bytes_,
                         .header_bytes = header_bytes,
                         .header_hash = xxh3(as_bytes(header))});
  file_ = std::make_unique<AtomicFile>(path, disk);
  file_->write(header);
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  PHX_ASSERT(file_, "bytes for a file without pieces");
  file_->write(bytes);
  Hashing& now = *hashing_;
  while (!bytes.empty()) {
    if (now.left_in_piece == 0) {
      PHX_ASSERT(now.piece < pieces_.size(), "more bytes than pieces");
      now.left_in_piece = piece_bytes(pieces_[now.piece].info, pieces_[now.piece].box);
      if (now.left_in_piece == 0) {
        ++now.piece;
        continue;
      }
    }
    if (now.left_in_block == 0) {
      now.left_in_block = std::min(part_.block_bytes, now.left_in_piece);
      now.hash.begin();
    }
    const int64_t count = std::min<int64_t>(now.left_in_block, int64_t(bytes.size()));
    now.hash.add(bytes.first(size_t(count)));
    bytes = bytes.subspan(size_t(count));
    now.left_in_block -= count;
    now.left_in_piece -= count;
    if (now.left_in_block == 0) saved_[now.piece].hashes.push_back(now.hash.value());
    if (now.left_in_piece == 0) ++now.piece;
  }
}

Manifest ShardWriter::finish() {
  if (file_) {
    PHX_ASSERT(file_->size() == part_.files[0].bytes, file_->path().string(), " has ",
               file_->size(), " of ", part_.files[0].bytes, " bytes");
    file_->commit();
    file_.reset();
  }
  for (size_t i = 0; i < pieces_.size(); ++i) {
    SavedTensor& tensor = part_.tensors[pieces_[i].name];
    tensor.info = pieces_[i].info;
    if (saved_[i].box.numel() > 0) tensor.pieces.push_back(std::move(saved_[i]));
  }
  return std::move(part_);
}

}  // namespace phx
