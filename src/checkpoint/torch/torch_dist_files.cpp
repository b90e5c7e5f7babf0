#include "phalanx/checkpoint/torch/torch_dist_files.h"

#include <algorithm>
#include <iterator>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/tensor_parts.h"

namespace phx {
namespace {

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

void TorchDistFiles::open(const std::string& name, const TorchDistPlace& place) {
  const Path file = folder_ / place.file;
  auto found = files_.find(place.file);
  if (found == files_.end()) found = files_.emplace(place.file, MappedFile(file)).first;
  PHX_CHECK(
      place.length <= found->second.size() && place.offset <= found->second.size() - place.length,
      file.native(), " has ", found->second.size(), " bytes, but ", printable(name), " should be ",
      place.length, " bytes at ", place.offset, ": it is cut off");
}

std::span<const std::byte> TorchDistFiles::bytes_at(const TorchDistPlace& place) const {
  return files_.at(place.file)
      .bytes()
      .subspan(static_cast<size_t>(place.offset), static_cast<size_t>(place.length));
}

TorchArchive TorchDistFiles::archive_at(const std::string& name,
                                        const TorchDistPlace& place) const {
  return TorchArchive(bytes_at(place),
                      str_cat((folder_ / place.file).native(), ": ", printable(name)));
}

const TorchTensor& TorchDistFiles::chunk(const std::string& name, const TorchDistTensor& tensor,
                                         const TorchDistChunk& chunk) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = chunks_.find(&chunk);
    if (found != chunks_.end()) return found->second;
  }
  const TorchArchive archive = archive_at(name, chunk.place);
  const std::string& where = archive.where();
  TorchTensor result = archive.tensor(archive.root(), name);
  PHX_CHECK(result.info.dtype == tensor.info.dtype &&
                without_ones(result.info.shape) == without_ones(chunk.box.size),
            where, ": the chunk at ", text_of(chunk.box.begin), " should be ",
            ::phx::name(tensor.info.dtype), " ", text_of(chunk.box.size), ", but is ",
            ::phx::name(result.info.dtype), " ", text_of(result.info.shape));
  const int64_t held = static_cast<int64_t>(result.bytes.size()) / size_of(result.info.dtype);
  PHX_CHECK(*num_elements(result.info.shape) <= held, where, ": the chunk is ",
            describe(result.info), ", but its storage has ", held, " elements");
  if (result.info.shape != chunk.box.size) result = reshaped(result, chunk.box.size);
  const std::lock_guard lock(mutex_);
  return chunks_.emplace(&chunk, std::move(result)).first->second;
}

void TorchDistFiles::copy(const std::string& name, const TorchDistTensor& tensor, const Box& box,
                          std::span<std::byte> out) const {
  const Dims from(box.begin.size(), 0);
  for (const TorchDistChunk& part : tensor.chunks) {
    if (!overlap(part.box, box)) continue;
    copy_part(chunk(name, tensor, part), from, part.box, box, out);
  }
}

}  // namespace phx
