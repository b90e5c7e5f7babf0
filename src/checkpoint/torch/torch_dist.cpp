#include "checkpoint/torch/torch_dist.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "checkpoint/torch/megatron_names.h"
#include "checkpoint/torch/pickle_json.h"
#include "checkpoint/torch/tensor_parts.h"

namespace phx {
namespace {

constexpr const char* kBackend = "torch_dist";
constexpr std::string_view kCommonObject = "common_state/shard_0_1";
constexpr std::string_view kOptimizer = "optimizer.";

std::string backend_of(const Path& folder) {
  const Path path = folder / "metadata.json";
  const auto json = try_parse_json(read_file(path));
  PHX_CHECK(json.is_object(), path.native(), " should be a JSON object");
  const auto backend = json.find("sharded_backend");
  PHX_CHECK(backend != json.end() && backend->is_string(), path.native(),
            " does not say its \"sharded_backend\"");
  return backend->get<std::string>();
}

Dims without_ones(const Dims& dims) {
  Dims rest;
  std::ranges::copy_if(dims, std::back_inserter(rest), [](int64_t dim) { return dim != 1; });
  return rest;
}

// The tensor seen with `shape`, which differs from its own in axes of one element only.
TorchTensor reshaped(const TorchTensor& tensor, const Dims& shape) {
  TorchTensor result{{tensor.info.dtype, shape}, Dims(shape.size(), 0), tensor.bytes, tensor.entry};
  size_t next = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    while (tensor.info.shape[next] == 1) ++next;
    result.strides[i] = tensor.strides[next++];
  }
  return result;
}

}  // namespace

bool TorchDistCheckpoint::is_one(const Path& path) {
  return std::filesystem::exists(path / "metadata.json") &&
         std::filesystem::exists(path / ".metadata");
}

TorchDistCheckpoint::TorchDistCheckpoint(const Path& path, const TorchReadOptions& options)
    : path_(path) {
  const std::string backend = backend_of(path);
  PHX_CHECK(backend == kBackend, (path / "metadata.json").native(), ": the checkpoint is of the ",
            "kind '", printable(backend), "'; only ", kBackend,
            " is read\n  hint: Megatron's own tools convert older kinds");
  metadata_ = TorchDistMetadata::read(path / ".metadata");
  open_files();
  read_common();
  add_tensors(options);
}

// All of them, and with every place inside: a checkpoint whose files are cut off fails here.
void TorchDistCheckpoint::open_files() {
  const auto check = [&](const std::string& name, const TorchDistPlace& place) {
    const Path file = path_ / place.file;
    auto found = files_.find(place.file);
    if (found == files_.end()) found = files_.emplace(place.file, MappedFile(file)).first;
    PHX_CHECK(
        place.length <= found->second.size() && place.offset <= found->second.size() - place.length,
        file.native(), " has ", found->second.size(), " bytes, but ", printable(name),
        " should be ", place.length, " bytes at ", place.offset, ": it is cut off");
  };
  for (const auto& [name, tensor] : metadata_.tensors) {
    for (const TorchDistChunk& chunk : tensor.chunks) check(name, chunk.place);
  }
  for (const auto& [name, place] : metadata_.objects) {
    if (name == kCommonObject) check(name, place);
  }
}

void TorchDistCheckpoint::read_common() {
  const Path file = path_ / "common.pt";
  const auto object = metadata_.objects.find(std::string(kCommonObject));
  if (object != metadata_.objects.end()) {
    const TorchArchive archive(
        bytes_at(object->second),
        str_cat((path_ / object->second.file).native(), ": ", object->first));
    common_ = pickle_json(archive.root());
  } else if (std::filesystem::exists(file)) {
    const MappedFile bytes(file);
    common_ = pickle_json(TorchArchive(bytes.bytes(), file.native()).root());
  }
}

void TorchDistCheckpoint::add_tensors(const TorchReadOptions& options) {
  int64_t left_out = 0;
  for (const auto& [key, tensor] : metadata_.tensors) {
    auto parts = parts_of_key(key, tensor.info.shape);
    // Of a kind whose tensors are flattened ranges, nothing is known to lie where the model's does.
    const size_t dot =
        key.starts_with(kOptimizer) ? key.find('.', sizeof("optimizer.state.") - 1) : key.npos;
    if (dot != key.npos) {
      const auto model = metadata_.tensors.find(key.substr(dot + 1));
      if (model == metadata_.tensors.end() || model->second.info.shape != tensor.info.shape)
        parts.clear();
      if (parts.empty()) ++left_out;
    }
    for (StackedPart& part : parts) {
      TensorInfo info = tensor.info;
      info.shape.erase(info.shape.begin(),
                       info.shape.begin() + static_cast<ptrdiff_t>(part.index.size()));
      if (options.vocab_size > 0 && has_vocabulary_rows(part.name) && !info.shape.empty())
        info.shape[0] = std::min(info.shape[0], options.vocab_size);
      PHX_CHECK(infos_.emplace(part.name, info).second, (path_ / ".metadata").native(), ": ",
                printable(part.name), " is there twice");
      parts_[part.name] = {&tensor, std::move(part.index)};
    }
  }
  if (left_out > 0)
    notes_.push_back(str_cat(left_out,
                             " tensors of optimizer state are left out: only state saved with the "
                             "model's shapes can be loaded under another layout (Megatron's "
                             "--dist-ckpt-optim-fully-reshardable)"));
}

std::span<const std::byte> TorchDistCheckpoint::bytes_at(const TorchDistPlace& place) const {
  return files_.at(place.file)
      .bytes()
      .subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.length));
}

const TorchTensor& TorchDistCheckpoint::chunk_tensor(const std::string& name,
                                                     const TorchDistTensor& tensor,
                                                     const TorchDistChunk& chunk) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = opened_.find(&chunk);
    if (found != opened_.end()) return found->second;
  }
  const std::string where = str_cat((path_ / chunk.place.file).native(), ": ", name);
  const TorchArchive archive(bytes_at(chunk.place), where);
  TorchTensor result = archive.tensor(archive.root(), name);
  PHX_CHECK(result.info.dtype == tensor.info.dtype &&
                without_ones(result.info.shape) == without_ones(chunk.box.size),
            where, ": the chunk at ", text_of(chunk.box.begin), " should be ",
            ::phx::name(tensor.info.dtype), " ", text_of(chunk.box.size), ", but is ",
            ::phx::name(result.info.dtype), " ", text_of(result.info.shape));
  if (result.info.shape != chunk.box.size) result = reshaped(result, chunk.box.size);
  const std::lock_guard lock(mutex_);
  return opened_.emplace(&chunk, std::move(result)).first->second;
}

void TorchDistCheckpoint::read(const std::string& name, const Box& box,
                               std::span<std::byte> out) const {
  const auto found = parts_.find(name);
  PHX_CHECK(found != parts_.end(), path_.native(), " has no tensor ", name, " among its ",
            parts_.size());
  check_box(str_cat(path_.native(), ": ", name), infos_.at(name), box, out.size());
  const Part& part = found->second;
  Box wanted{part.index, Dims(part.index.size(), 1)};
  wanted.begin.insert(wanted.begin.end(), box.begin.begin(), box.begin.end());
  wanted.size.insert(wanted.size.end(), box.size.begin(), box.size.end());
  const Dims from(wanted.begin.size(), 0);
  for (const TorchDistChunk& chunk : part.tensor->chunks) {
    if (!overlap(chunk.box, wanted)) continue;
    copy_part(chunk_tensor(name, *part.tensor, chunk), from, chunk.box, wanted, out);
  }
}

std::string TorchDistCheckpoint::description() const {
  return str_cat(path_.filename().native(), " (torch_dist, ", infos_.size(), " tensors)");
}

}  // namespace phx
