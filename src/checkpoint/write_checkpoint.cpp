#include "phalanx/checkpoint/write_checkpoint.h"

#include <cstdio>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/shard_writer.h"

namespace phx {

namespace {

constexpr int64_t kBufferBytes = 16 << 20;

std::string shard_name(size_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "shard_%05zu.safetensors", number);
  return name;
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
    shard.open();
    std::vector<std::byte> buffer;
    for (const PieceToWrite& piece : pieces)
      for_each_slab(piece.info, kBufferBytes, [&](const Box& slab) {
        buffer.resize(size_t(piece_bytes(piece.info, slab)));
        source.read(piece.name, slab, buffer);
        shard.write(buffer);
      });
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
