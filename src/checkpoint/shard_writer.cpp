#include "phalanx/checkpoint/shard_writer.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/safetensors.h"

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

// Where in the file the next byte is, and the checksum of its block so far.
struct ShardWriter::Hashing {
  int64_t left_in_header = 0;
  size_t piece = 0;
  int64_t left_in_piece = 0, left_in_block = 0;
  Xxh3 hash;
};

ShardWriter::ShardWriter(const Path& folder, const std::string& file_name,
                         std::vector<PieceToWrite> pieces, Disk& disk)
    : path_(folder / file_name),
      disk_(disk),
      pieces_(std::move(pieces)),
      hashing_(std::make_unique<Hashing>()) {
  if (pieces_.empty()) return;
  std::vector<SafetensorsEntry> entries;
  for (const PieceToWrite& piece : pieces_)
    entries.push_back({tensor_name(piece), safetensors_dtype(piece.info.dtype), piece.box.size});
  // As flat buffers lie in memory: what is read past the page cache can go to its place at once.
  header_ = safetensors_header(path_, entries, {}, DirectFile::kAlignment);
  const int64_t header_bytes = int64_t(header_.size());
  int64_t offset = header_bytes;
  for (const PieceToWrite& piece : pieces_) {
    saved_.push_back({.file = 0, .offset = offset, .box = piece.box, .hashes = {}});
    offset += piece_bytes(piece.info, piece.box);
  }
  part_.files.push_back({.name = file_name,
                         .bytes = offset,
                         .header_bytes = header_bytes,
                         .header_hash = xxh3(as_bytes(header_))});
  hashing_->left_in_header = header_bytes;
}

ShardWriter::~ShardWriter() = default;

int64_t ShardWriter::bytes() const { return part_.files.empty() ? 0 : part_.files[0].bytes; }

void ShardWriter::open() {
  if (!pieces_.empty()) file_ = std::make_unique<DirectFile>(path_, bytes(), disk_);
}

void ShardWriter::write(std::span<const std::byte> bytes) {
  if (written_ == 0 && !header_.empty()) {
    account(as_bytes(header_));
    write_at(0, as_bytes(header_));
  }
  account(bytes);
  write_at(written_, bytes);
}

void ShardWriter::write_at(int64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  PHX_ASSERT(file_, "bytes for a file that is not open: ", path_.native());
  file_->write_at(offset, bytes);
  written_ += int64_t(bytes.size());
}

void ShardWriter::account(std::span<const std::byte> bytes) {
  Hashing& now = *hashing_;
  const size_t of_header = std::min(size_t(now.left_in_header), bytes.size());
  bytes = bytes.subspan(of_header);
  now.left_in_header -= int64_t(of_header);
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
    if (written_ == 0) write({});  // pieces without bytes
    PHX_ASSERT(written_ == bytes(), path_.native(), " has ", int64_t(written_), " of ", bytes(),
               " bytes");
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
