#include "phalanx/checkpoint/native_checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/shard_reader.h"
#include "phalanx/checkpoint/torch/torch_kind.h"

namespace phx {

namespace {

constexpr int64_t kVerifyBytes = 8 << 20;  // read in one go

// The same elements in two row-major boxes, as runs that are contiguous in both.
struct Run {
  int64_t from = 0, to = 0, count = 0;  // offsets in elements
};

// f(run) for the elements that `outer` and `box` have in common, in the order of `outer`.
template <class F>
void for_common_runs(const Box& outer, const Box& box, F&& f) {
  const size_t rank = outer.begin.size();
  std::vector<int64_t> begin(rank), size(rank), at(rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    begin[i] = std::max(outer.begin[i], box.begin[i]);
    const int64_t end = std::min(outer.begin[i] + outer.size[i], box.begin[i] + box.size[i]);
    size[i] = end - begin[i];
    if (size[i] <= 0) return;
  }
  // Axes behind `inner` are whole in both boxes: what lies along `inner` is one run.
  size_t inner = rank == 0 ? 0 : rank - 1;
  int64_t width = 1;
  while (inner > 0 && size[inner] == outer.size[inner] && size[inner] == box.size[inner])
    width *= size[inner--];
  const int64_t count = rank == 0 ? 1 : size[inner] * width;
  while (true) {
    int64_t from = 0, to = 0;
    for (size_t i = 0; i < rank; ++i) {
      from = from * outer.size[i] + begin[i] + at[i] - outer.begin[i];
      to = to * box.size[i] + begin[i] + at[i] - box.begin[i];
    }
    f(Run{from, to, count});
    size_t axis = inner;
    while (axis > 0 && ++at[axis - 1] == size[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace

NativeCheckpoint::NativeCheckpoint(const Path& path, Readers readers)
    : path_(path), readers_(readers) {
  const Path file = manifest_path(path);
  PHX_CHECK(std::filesystem::exists(file), path.string(),
            " is no checkpoint: it has no manifest.json",
            std::filesystem::exists(path / "model.safetensors")
                ? "; it is of an older build, whose format is not read any more"
                : "");
  manifest_ = Manifest::parse(read_file(file), file.string());
  manifest_.check_complete(file.string());
  for (const ShardFile& shard : manifest_.files) {
    struct stat info {};
    const Path shard_path = path / shard.name;
    if (::stat(shard_path.c_str(), &info) != 0) throw_file_error("read", shard_path, errno);
    PHX_CHECK(info.st_size == shard.bytes, shard_path.string(), " has ", int64_t(info.st_size),
              " bytes, and was written with ", shard.bytes, ": the checkpoint is damaged");
  }
  shards_.resize(manifest_.files.size());
  for (const auto& [name, tensor] : manifest_.tensors) infos_[name] = tensor.info;
}

NativeCheckpoint::~NativeCheckpoint() = default;

std::string NativeCheckpoint::description() const {
  return str_cat(path_.string(), " (native, ", infos_.size(), " tensors)");
}

const std::string& NativeCheckpoint::info(const std::string& key) const {
  const auto found = manifest_.info.find(key);
  PHX_CHECK(found != manifest_.info.end(), path_.string(), " says nothing of its ", key);
  return found->second;
}

int64_t NativeCheckpoint::bytes() const {
  int64_t sum = 0;
  for (const ShardFile& file : manifest_.files) sum += file.bytes;
  return sum;
}

const ShardReader& NativeCheckpoint::shard(int64_t file) const {
  const std::lock_guard lock(mutex_);
  auto& reader = shards_[size_t(file)];
  const ShardFile& said = manifest_.files[size_t(file)];
  if (!reader)
    reader = std::make_unique<ShardReader>(path_ / said.name, said, readers_ == Readers::one);
  return *reader;
}

void NativeCheckpoint::read(const std::string& name, const Box& box,
                            std::span<std::byte> out) const {
  const auto found = manifest_.tensors.find(name);
  PHX_CHECK(found != manifest_.tensors.end(), path_.string(), " has no tensor ", name);
  const SavedTensor& tensor = found->second;
  bool inside = box.begin.size() == tensor.info.shape.size() && box.size.size() == box.begin.size();
  for (size_t i = 0; inside && i < box.begin.size(); ++i)
    inside =
        box.begin[i] >= 0 && box.size[i] >= 0 && box.begin[i] + box.size[i] <= tensor.info.shape[i];
  PHX_CHECK(inside && int64_t(out.size()) == piece_bytes(tensor.info, box),
            "a box that does not fit is asked of ", name, " ", describe(tensor.info));
  for (const SavedPiece& piece : tensor.pieces) read_piece(name, tensor.info, piece, box, out);
}

void NativeCheckpoint::read_piece(const std::string& name, const TensorInfo& info,
                                  const SavedPiece& piece, const Box& box,
                                  std::span<std::byte> out) const {
  const int64_t element = size_of(info.dtype), bytes = piece_bytes(info, piece.box);
  const int64_t block_bytes = manifest_.block_bytes;
  const ShardReader* file = nullptr;
  std::vector<std::byte> block;  // the one that was read last
  int64_t in_block = -1;         // its number
  // Whole blocks from this one on.
  const auto read_blocks = [&](int64_t number, std::span<std::byte> into) {
    if (file == nullptr) file = &shard(piece.file);
    const int64_t offset = piece.offset + number * block_bytes;
    bytes_read_ += int64_t(into.size());
    const auto bad = file->read_blocks(offset, into, block_bytes,
                                       std::span(piece.hashes).subspan(size_t(number)));
    PHX_CHECK(!bad, file->path().string(), " is damaged: bytes from ", *bad, " on, of ", name,
              ", are not what was written");
  };
  for_common_runs(piece.box, box, [&](const Run& run) {
    if (run.count * element > block_bytes) {
      file = &shard(piece.file);
      file->will_read(piece.offset + run.from * element, run.count * element);
    }
    int64_t from = run.from * element, to = run.to * element, left = run.count * element;
    while (left > 0) {
      const int64_t number = from / block_bytes, begin = number * block_bytes;
      const int64_t size = std::min(block_bytes, bytes - begin);
      int64_t count = std::min(left, begin + size - from);
      if (count == size) {  // all of the block goes to one place, and maybe some behind it
        count = left == bytes - begin ? left : left / block_bytes * block_bytes;
        read_blocks(number, out.subspan(size_t(to), size_t(count)));
      } else {
        if (in_block != number) {
          block.resize(size_t(size));
          in_block = -1;
          read_blocks(number, block);
          in_block = number;
        }
        std::memcpy(out.data() + to, block.data() + (from - begin), size_t(count));
      }
      from += count;
      to += count;
      left -= count;
    }
  });
}

namespace {

// `shard(i)`: the open file i of the manifest.
template <class Shard>
void verify_blocks(const Path& folder, const Manifest& manifest, const Shard& shard) {
  std::vector<int64_t> accounted(manifest.files.size());
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    shard(int64_t(i));  // its header
    accounted[i] = manifest.files[i].header_bytes;
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      const int64_t size = piece_bytes(tensor.info, piece.box);
      accounted[size_t(piece.file)] += size;
      const ShardReader& file = shard(piece.file);
      const int64_t step = std::max(kVerifyBytes / manifest.block_bytes, int64_t{1});
      for (int64_t block = 0; block < int64_t(piece.hashes.size()); block += step) {
        const int64_t begin = block * manifest.block_bytes;
        bytes.resize(size_t(std::min(step * manifest.block_bytes, size - begin)));
        const auto bad = file.read_blocks(piece.offset + begin, bytes, manifest.block_bytes,
                                          std::span(piece.hashes).subspan(size_t(block)));
        PHX_CHECK(!bad, file.path().string(), " is damaged: bytes from ", *bad, " on, of ", name,
                  ", are not what was written");
      }
    }
  }
  for (size_t i = 0; i < accounted.size(); ++i)
    PHX_CHECK(accounted[i] == manifest.files[i].bytes, (folder / manifest.files[i].name).string(),
              " has ", manifest.files[i].bytes - accounted[i], " bytes that belong to no tensor");
}

}  // namespace

void NativeCheckpoint::verify() const {
  verify_blocks(path_, manifest_, [&](int64_t i) -> const ShardReader& { return shard(i); });
}

void verify_on_disk(const Path& folder, const Manifest& manifest) {
  std::vector<std::unique_ptr<ShardReader>> shards;
  for (const ShardFile& file : manifest.files) {
    drop_from_page_cache(folder / file.name);
    shards.push_back(std::make_unique<ShardReader>(folder / file.name, file, /*direct=*/true));
  }
  verify_blocks(folder, manifest,
                [&](int64_t i) -> const ShardReader& { return *shards[size_t(i)]; });
}

bool is_native_checkpoint(const Path& path) { return std::filesystem::exists(manifest_path(path)); }

std::optional<int64_t> newest_valid_checkpoint(const Path& folder,
                                               std::vector<std::string>& why_not) {
  for (const int64_t iteration : checkpoints_in(folder)) {
    try {
      NativeCheckpoint(find_checkpoint(folder, iteration)).verify();
      return iteration;
    } catch (const std::exception& error) {
      why_not.push_back(error.what());
    }
  }
  return std::nullopt;
}

std::optional<CheckpointToLoad> checkpoint_to_load(const Path& folder) {
  const std::vector<int64_t> there = checkpoints_in(folder);  // the newest first
  if (const std::optional<int64_t> named = latest_checkpoint(folder)) {
    PHX_CHECK(std::filesystem::exists(find_checkpoint(folder, *named)), folder.string(),
              ": latest_checkpointed_iteration.txt names iteration ", *named, ", but ",
              iteration_name(*named), " is not there",
              there.empty()
                  ? "\n  hint: copy it there, or give another folder"
                  : str_cat("\n  hint: the newest that is there is iteration ", there.front(),
                            ": --ckpt-step ", there.front(), ", or --load-newest-valid"));
    return CheckpointToLoad{.iteration = *named};
  }
  std::string why_not;
  for (const int64_t iteration : there) {
    try {
      const NativeCheckpoint complete(find_checkpoint(folder, iteration));
      return CheckpointToLoad{
          .iteration = iteration,
          .warning = str_cat(folder.string(),
                             " has no latest_checkpointed_iteration.txt; the newest complete "
                             "checkpoint there is used: iteration ",
                             iteration, why_not)};
    } catch (const std::exception& error) {
      why_not += str_cat("\n  ", error.what());
    }
  }
  // Nothing says whether the files of a checkpoint of Megatron's are all there: it is not taken
  // unasked.
  for (const int64_t iteration : there) {
    const TorchKind kind = torch_checkpoint_kind(checkpoint_path(folder, iteration)).kind;
    PHX_CHECK(
        kind == TorchKind::none, folder.string(),
        " has no latest_checkpointed_iteration.txt, which says the newest complete checkpoint",
        "\n  hint: --ckpt-step ", iteration, " loads ", iteration_name(iteration),
        ", which Megatron wrote (", name(kind), ")");
  }
  PHX_CHECK(there.empty(), folder.string(),
            " has no latest_checkpointed_iteration.txt, and none of ", "its ", there.size(),
            " checkpoints is complete:", why_not,
            "\n  hint: give another --load, or move these folders away to begin anew");
  return std::nullopt;
}

}  // namespace phx
