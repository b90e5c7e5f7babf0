#include "checkpoint/write_checkpoint.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard_writer.h"

namespace phx {

namespace {

constexpr int64_t kBufferBytes = 16 << 20;

std::string shard_name(size_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "shard_%05zu.safetensors", number);
  return name;
}

// The elements of a tensor in order, in boxes of at most kBufferBytes.
void copy_tensor(const TensorSource& source, const std::string& name, const TensorInfo& info,
                 std::vector<std::byte>& buffer, ShardWriter& shard) {
  const int64_t most = std::max<int64_t>(kBufferBytes / size_of(info.dtype), 1);
  Box box = whole_box(info.shape);
  if (box.numel() == 0) return;
  // The first axes are taken one by one until what is behind fits; the next one in slices.
  size_t cut = 0;
  int64_t behind = box.numel();
  while (cut < info.shape.size() && behind / info.shape[cut] > most) behind /= info.shape[cut++];
  if (cut < info.shape.size()) behind /= info.shape[cut];
  for (size_t i = 0; i < cut; ++i) box.size[i] = 1;
  const int64_t slice = cut < info.shape.size() ? std::max<int64_t>(most / behind, 1) : 1;
  while (true) {
    if (cut < info.shape.size()) box.size[cut] = std::min(slice, info.shape[cut] - box.begin[cut]);
    buffer.resize(size_t(piece_bytes(info, box)));
    source.read(name, box, buffer);
    shard.write(buffer);
    if (cut == info.shape.size()) return;
    box.begin[cut] += box.size[cut];
    size_t axis = cut;
    while (box.begin[axis] == info.shape[axis]) {
      if (axis == 0) return;
      box.begin[axis--] = 0;
      ++box.begin[axis];
    }
  }
}

}  // namespace

void write_checkpoint(const Path& folder, int64_t iteration, const TensorSource& source,
                      const CheckpointInfo& info, const WriteOptions& options) {
  prepare_checkpoint(folder, iteration, *options.disk);
  const Path temporary = temporary_path(folder, iteration);
  Manifest manifest;
  manifest.iteration = iteration;
  manifest.info = info;
  std::vector<PieceToWrite> pieces;
  int64_t bytes = 0;
  const auto close_shard = [&] {
    ShardWriter shard(temporary, shard_name(manifest.files.size()), pieces, *options.disk);
    std::vector<std::byte> buffer;
    for (const PieceToWrite& piece : pieces)
      copy_tensor(source, piece.name, piece.info, buffer, shard);
    Manifest part = shard.finish();
    part.iteration = iteration;
    manifest.merge(std::move(part), temporary.string());
    pieces.clear();
    bytes = 0;
  };
  for (const auto& [name, tensor] : source.tensors()) {
    pieces.push_back({name, tensor, whole_box(tensor.shape)});
    bytes += piece_bytes(tensor, pieces.back().box);
    if (bytes >= options.shard_bytes) close_shard();
  }
  close_shard();
  manifest.check_complete(temporary.string());
  write_file(manifest_path(temporary), manifest.to_text(), *options.disk);
  commit_checkpoint(folder, iteration, *options.disk);
}

}  // namespace phx
