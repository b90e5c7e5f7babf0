#include "phalanx/checkpoint/loader.h"

#include <algorithm>
#include <array>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"
#include "phalanx/core/in_parallel.h"

namespace phx {

namespace {

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

// Rows of a box, about kLoadChunkBytes of them, or of a long row some columns.
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
    const int64_t cols = std::min(box.cols, std::max<int64_t>(kLoadChunkBytes / element, 1));
    const int64_t rows = std::max<int64_t>(kLoadChunkBytes / (element * cols), 1);
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

  // Every thread takes the next chunk when it is done with one: disks are uneven. More threads than
  // processors are of use, since most of them wait for the disk.
  void read(std::span<const Chunk> chunks) {
    const bool on_host = runtime_.kind() == DeviceKind::cpu;
    // Copies to a device come behind what it has been told to compute so far.
    if (!on_host)
      runtime_.stream(StreamName::h2d).wait(runtime_.stream(StreamName::compute).record());
    share_work(chunks.size(), kLoadReaders, [&](Turns& turns) {
      on_host ? read_into_place(chunks, turns) : read_through_buffers(chunks, turns);
    });
  }

 private:
  void read_into_place(std::span<const Chunk> chunks, Turns& turns) {
    std::vector<std::byte> buffer;
    while (const auto i = turns.next()) {
      const Chunk& chunk = chunks[*i];
      if (chunk.dense()) {
        fetch(chunk, {static_cast<std::byte*>(at(chunk)), bytes_of(chunk)});
      } else {
        buffer.resize(bytes_of(chunk));
        fetch(chunk, buffer);
        scatter(chunk, buffer);
      }
    }
  }

  // To another device, from memory that it copies by itself: into the second buffer of a thread is
  // read while the first one is copied.
  void read_through_buffers(std::span<const Chunk> chunks, Turns& turns) {
    Backend& backend = runtime_.backend();
    backend.attach_thread();
    struct Buffer {
      std::shared_ptr<void> memory;
      Fence left;  // what it held is on the device
    };
    std::array<Buffer, 2> buffers;
    size_t turn = 0;
    while (const auto i = turns.next()) {
      const Chunk& chunk = chunks[*i];
      Buffer& buffer = buffers[turn];
      turn = 1 - turn;
      if (!buffer.memory) buffer.memory = backend.host_buffer(kLoadChunkBytes);
      backend.wait_on_host(buffer.left);
      PHX_ASSERT(bytes_of(chunk) <= size_t(kLoadChunkBytes), "a chunk of ", bytes_of(chunk));
      const std::span bytes(static_cast<std::byte*>(buffer.memory.get()), bytes_of(chunk));
      fetch(chunk, bytes);
      scatter(chunk, bytes);
      buffer.left = backend.record(StreamName::h2d);
    }
    for (const Buffer& buffer : buffers) backend.wait_on_host(buffer.left);
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
          bytes.data() + row * row_bytes, row_bytes, StreamName::h2d);
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

TensorInfos with_buffers(TensorInfos expected, const TensorSource& source,
                         const TensorInfos& buffers) {
  for (const auto& [name, info] : buffers)
    if (const auto found = source.tensors().find(name); found != source.tensors().end())
      expected[name] = {found->second.dtype, info.shape};
  return expected;
}

void load_buffers(const TensorSource& source, const ParameterStore& buffers) {
  if (buffers.parameters().empty()) return;
  const FlatRange all = buffers.all();
  const FlatState state{"", buffers.weights()};
  std::vector<LocalBox> boxes = boxes_of(buffers, state, {&all, 1});
  std::erase_if(boxes, [&](const LocalBox& box) { return !source.tensors().contains(box.name); });
  for (const LocalBox& box : boxes)
    PHX_CHECK(fits(source.tensors().at(box.name), box.info, {.convert = true}), box.name, ": ",
              source.description(), " has ", describe(source.tensors().at(box.name)),
              ", the model ", describe(box.info));
  if (boxes.empty() || state.flat.device().kind() == DeviceKind::meta) return;
  ChunkReader(source, state.flat.runtime()).read(chunks_of(boxes));
}

}  // namespace phx
