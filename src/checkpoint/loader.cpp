#include "checkpoint/loader.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/options.h"

namespace phx {

namespace {

constexpr int64_t kChunkBytes = 16 << 20;  // of memory, read in one go
constexpr size_t kNamesShown = 5;

std::string shown(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = str_cat("\n  ", title, ": ", lines.size());
  for (size_t i = 0; i < std::min(lines.size(), kNamesShown); ++i) text += "\n    " + lines[i];
  if (lines.size() > kNamesShown)
    text += str_cat("\n    and ", lines.size() - kNamesShown, " more");
  return text;
}

bool computes(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

bool fits(const TensorInfo& given, const TensorInfo& wanted, const LoadOptions& options) {
  if (given.shape != wanted.shape) return false;
  return given.dtype == wanted.dtype ||
         (options.convert && computes(given.dtype) && computes(wanted.dtype));
}

// Rows of a box, about kChunkBytes of them, or of a long row some columns.
struct Chunk {
  const LocalBox* box = nullptr;
  int64_t row = 0, rows = 0, col = 0, cols = 0;  // within the box

  int64_t numel() const { return rows * cols; }
  int64_t offset() const { return box->offset + row * box->pitch + col; }
  bool dense() const { return rows == 1 || cols == box->pitch; }
  Box global() const {
    Box part = box->box;
    part.begin[0] += row;
    part.size[0] = rows;
    if (part.begin.size() > 1) {
      part.begin[1] += col;
      part.size[1] = cols;
    }
    return part;
  }
};

std::vector<Chunk> chunks_of(const std::vector<LocalBox>& boxes) {
  std::vector<Chunk> chunks;
  for (const LocalBox& box : boxes) {
    const int64_t element = size_of(box.info.dtype);
    const int64_t cols = std::min(box.cols, std::max<int64_t>(kChunkBytes / element, 1));
    const int64_t rows = std::max<int64_t>(kChunkBytes / (element * cols), 1);
    for (int64_t row = 0; row < box.rows; row += rows)
      for (int64_t col = 0; col < box.cols; col += cols)
        chunks.push_back({.box = &box,
                          .row = row,
                          .rows = std::min(rows, box.rows - row),
                          .col = col,
                          .cols = std::min(cols, box.cols - col)});
  }
  return chunks;
}

class ChunkReader {
 public:
  ChunkReader(const TensorSource& source, Runtime& runtime) : source_(source), runtime_(runtime) {}

  void read(std::span<const Chunk> chunks) {
    if (runtime_.kind() == DeviceKind::cpu) {
      read_into_place(chunks);
    } else {
      read_through_buffers(chunks);
    }
  }

 private:
  int64_t readers() const { return std::min(runtime_.threads().size(), 4); }

  // On a CPU. Every thread takes the next chunk when it is done with one: disks are uneven.
  void read_into_place(std::span<const Chunk> chunks) {
    std::atomic<size_t> next{0};
    runtime_.threads().parallel_for(readers(), 1, [&](int64_t begin, int64_t end) {
      if (begin == end) return;
      std::vector<std::byte> buffer;
      for (size_t i = next++; i < chunks.size(); i = next++) {
        const Chunk& chunk = chunks[i];
        if (chunk.dense()) {
          fetch(chunk, {static_cast<std::byte*>(at(chunk)), bytes_of(chunk)});
        } else {
          buffer.resize(bytes_of(chunk));
          fetch(chunk, buffer);
          scatter(chunk, buffer);
        }
      }
    });
  }

  // To another device: threads read, this one copies.
  void read_through_buffers(std::span<const Chunk> chunks) {
    const size_t together = size_t(readers());
    std::vector<std::vector<std::byte>> buffers(together);
    for (size_t first = 0; first < chunks.size(); first += together) {
      const size_t count = std::min(together, chunks.size() - first);
      runtime_.threads().parallel_for(int64_t(count), 1, [&](int64_t begin, int64_t end) {
        for (size_t i = size_t(begin); i < size_t(end); ++i) {
          buffers[i].resize(bytes_of(chunks[first + i]));
          fetch(chunks[first + i], buffers[i]);
        }
      });
      for (size_t i = 0; i < count; ++i) scatter(chunks[first + i], buffers[i]);
      runtime_.synchronize();  // the buffers are filled anew
    }
  }

  static size_t bytes_of(const Chunk& chunk) {
    return size_t(chunk.numel() * size_of(chunk.box->info.dtype));
  }
  static void* at(const Chunk& chunk) {
    return static_cast<std::byte*>(chunk.box->flat.raw()) +
           chunk.offset() * size_of(chunk.box->info.dtype);
  }

  // The chunk's elements in the state's type.
  void fetch(const Chunk& chunk, std::span<std::byte> out) const {
    const DType given = source_.tensors().at(chunk.box->name).dtype, wanted = chunk.box->info.dtype;
    if (given == wanted) return source_.read(chunk.box->name, chunk.global(), out);
    std::vector<std::byte> raw(size_t(chunk.numel() * size_of(given)));
    source_.read(chunk.box->name, chunk.global(), raw);
    convert_floats(given, raw, wanted, out);
  }

  void scatter(const Chunk& chunk, std::span<const std::byte> bytes) const {
    const int64_t element = size_of(chunk.box->info.dtype);
    const int64_t rows = chunk.dense() ? 1 : chunk.rows;
    const int64_t row_bytes = int64_t(bytes.size()) / rows;
    for (int64_t row = 0; row < rows; ++row)
      runtime_.backend().copy_to_device(
          static_cast<std::byte*>(at(chunk)) + row * chunk.box->pitch * element,
          bytes.data() + row * row_bytes, row_bytes, StreamName::compute);
  }

  const TensorSource& source_;
  Runtime& runtime_;
};

}  // namespace

void check_tensors(const TensorSource& source, const TensorInfos& expected,
                   const LoadOptions& options) {
  std::vector<std::string> missing, different, unexpected;
  for (const auto& [name, info] : source.tensors()) {
    const bool ignored = std::ranges::any_of(
        options.ignored, [&](const std::string& prefix) { return name.starts_with(prefix); });
    if (!ignored && !expected.contains(name)) unexpected.push_back(name);
  }
  for (const auto& [name, wanted] : expected) {
    const auto found = source.tensors().find(name);
    if (found == source.tensors().end()) {
      const std::string near = missing.size() < kNamesShown ? nearest(name, unexpected) : "";
      missing.push_back(near.empty() ? name : str_cat(name, " (the nearest it has is ", near, ")"));
    } else if (!fits(found->second, wanted, options)) {
      different.push_back(str_cat(name, ": the file has ", describe(found->second), ", the model ",
                                  describe(wanted)));
    }
  }
  if (missing.empty() && different.empty() && unexpected.empty()) return;
  throw_error(str_cat(source.description(), " does not fit the model: ",
                      expected.size() - missing.size() - different.size(), " of ", expected.size(),
                      " tensors do", shown("missing in the file", missing),
                      shown("different", different), shown("not in the model", unexpected)));
}

LoadReport load_parameters(const TensorSource& source, const ParameterStore& store,
                           std::span<const FlatState> states, const LoadOptions& options) {
  // Everything is checked before anything is overwritten.
  const TensorInfos own = tensors_of(store, states);
  check_tensors(source, options.model != nullptr ? *options.model : own, options);
  if (options.model != nullptr)
    for (const auto& [name, info] : own)
      PHX_ASSERT(options.model->contains(name), name, " is held by a rank but not by the model");
  LoadReport report{.tensors = int64_t((options.model != nullptr ? *options.model : own).size()),
                    .bytes = 0};
  const FlatRange all = store.all();
  for (const FlatState& state : states) {
    const std::vector<LocalBox> boxes = boxes_of(store, state, {&all, 1});
    for (const LocalBox& box : boxes) report.bytes += box.bytes();
    if (state.flat.device().kind() == DeviceKind::meta) continue;
    ChunkReader(source, state.flat.runtime()).read(chunks_of(boxes));
  }
  return report;
}

}  // namespace phx
