#include "phalanx/checkpoint/torch/torch_dist_files_writer.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/zip.h"

namespace phx {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;  // read and written at once

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// data.pkl of one dense tensor.
std::string tensor_pickle(const TensorInfo& info, int64_t count) {
  const TorchDtypeNames names = torch_names(info.dtype);
  PickleWriter writer;
  writer.call("torch._utils", "_rebuild_tensor_v2", [&] {
    writer.persistent([&] {
      writer.text("storage");
      writer.global("torch", names.storage);
      writer.text("0");
      writer.text("cpu");
      writer.integer(count);
    });
    writer.integer(0);
    writer.integers(info.shape);
    writer.integers(dense_strides(info.shape));
    writer.boolean(false);
    writer.call("collections", "OrderedDict", [] {});
  });
  return writer.finish();
}

// f(piece, bytes) for pieces of rows that are of a size to have in memory.
template <class F>
void for_pieces(const Box& box, DType dtype, F&& f) {
  const int64_t bytes = *num_elements(box.size) * size_of(dtype);
  if (bytes == 0) return;
  if (box.size.empty()) return f(box, bytes);
  const int64_t row = bytes / box.size[0];
  const int64_t rows = std::max<int64_t>(1, kPieceBytes / row);
  Box piece = box;
  for (int64_t begin = 0; begin < box.size[0]; begin += rows) {
    piece.begin[0] = box.begin[0] + begin;
    piece.size[0] = std::min(rows, box.size[0] - begin);
    f(piece, piece.size[0] * row);
  }
}

}  // namespace

TorchDistPlace TorchDistFilesWriter::write(const TensorSource& source, const std::string& name,
                                           const Box& box, const TensorInfo& stored) {
  TorchDistPlace place = begin();
  ZipWriter zip([&](std::span<const std::byte> bytes) { file_->write(bytes); });
  const int64_t elements = *num_elements(stored.shape);
  const int64_t bytes = elements * size_of(stored.dtype);
  zip.add("archive/data.pkl", bytes_of(tensor_pickle(stored, elements)));
  zip.add("archive/byteorder", bytes_of("little"));
  zip.begin("archive/data/0", static_cast<uint64_t>(bytes));
  int64_t written = 0;
  for_pieces(box, stored.dtype, [&](const Box& piece, int64_t size) {
    buffer_.resize(static_cast<size_t>(size));
    source.read(name, piece, buffer_);
    zip.append(buffer_);
    written += size;
  });
  buffer_.assign(static_cast<size_t>(bytes - written), std::byte{0});
  zip.append(buffer_);
  zip.end();
  zip.add("archive/version", bytes_of("3\n"));
  zip.finish();
  place.length = file_->size() - place.offset;
  return place;
}

TorchDistPlace TorchDistFilesWriter::write(const std::string& object) {
  TorchDistPlace place = begin();
  file_->write(bytes_of(object));
  place.length = file_->size() - place.offset;
  return place;
}

void TorchDistFilesWriter::close() {
  if (file_ != nullptr) file_->commit();
  file_.reset();
}

TorchDistPlace TorchDistFilesWriter::begin() {
  if (file_ != nullptr && file_->size() >= file_bytes_) close();
  if (file_ == nullptr)
    file_ = std::make_unique<AtomicFile>(folder_ / str_cat("__0_", count_++, ".distcp"));
  return {file_->path().filename().native(), file_->size(), 0};
}

}  // namespace phx
