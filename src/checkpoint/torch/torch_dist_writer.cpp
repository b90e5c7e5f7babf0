#include "checkpoint/torch/torch_dist_writer.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/torch/megatron_names.h"
#include "checkpoint/torch/pickle_writer.h"
#include "checkpoint/torch/torch_archive.h"
#include "checkpoint/torch/torch_dist_metadata.h"
#include "checkpoint/torch/zip.h"

namespace phx {
namespace {

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFileModule = "torch.distributed.checkpoint.filesystem";
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

// A torch.save file through `sink`, whose one storage `fill` appends.
template <class Fill>
void write_archive(ZipWriter& zip, const std::string& object, int64_t storage_bytes, Fill&& fill) {
  zip.add("archive/data.pkl", bytes_of(object));
  zip.add("archive/byteorder", bytes_of("little"));
  if (storage_bytes >= 0) {
    zip.begin("archive/data/0", static_cast<uint64_t>(storage_bytes));
    fill();
    zip.end();
  }
  zip.add("archive/version", bytes_of("3\n"));
  zip.finish();
}

// f(box) for boxes of rows that are of a size to have in memory.
template <class F>
void for_pieces(const TensorInfo& info, F&& f) {
  Box box{Dims(info.shape.size(), 0), info.shape};
  const int64_t bytes = *num_elements(info.shape) * size_of(info.dtype);
  if (bytes == 0) return;
  if (info.shape.empty()) return f(box, bytes);
  const int64_t row = bytes / info.shape[0];
  const int64_t rows = std::max<int64_t>(1, kPieceBytes / row);
  for (int64_t begin = 0; begin < info.shape[0]; begin += rows) {
    box.begin[0] = begin;
    box.size[0] = std::min(rows, info.shape[0] - begin);
    f(box, box.size[0] * row);
  }
}

struct WrittenChunk {
  Dims begin, size;
  TorchDistPlace place;
};
using WrittenChunks = std::map<std::string, std::vector<WrittenChunk>>;

// The .distcp files, one after the other.
class ChunkFiles {
 public:
  ChunkFiles(const Path& folder, int64_t file_bytes) : folder_(folder), file_bytes_(file_bytes) {}

  TorchDistPlace write(const TensorSource& source, const std::string& name, const TensorInfo& info,
                       const TensorInfo& stored) {
    if (file_ != nullptr && file_->size() >= file_bytes_) close();
    if (file_ == nullptr)
      file_ = std::make_unique<AtomicFile>(folder_ / str_cat("__0_", count_++, ".distcp"));
    TorchDistPlace place{file_->path().filename().native(), file_->size(), 0};
    ZipWriter zip([&](std::span<const std::byte> bytes) { file_->write(bytes); });
    const int64_t elements = *num_elements(stored.shape);
    write_archive(zip, tensor_pickle(stored, elements), elements * size_of(stored.dtype), [&] {
      for_pieces(info, [&](const Box& box, int64_t bytes) {
        buffer_.resize(static_cast<size_t>(bytes));
        source.read(name, box, buffer_);
        zip.append(buffer_);
      });
    });
    place.length = file_->size() - place.offset;
    return place;
  }

  void close() {
    if (file_ != nullptr) file_->commit();
    file_.reset();
  }

 private:
  Path folder_;
  int64_t file_bytes_;
  int count_ = 0;
  std::unique_ptr<AtomicFile> file_;
  std::vector<std::byte> buffer_;
};

void pickle_tensor_entry(PickleWriter& writer, const TensorInfo& info,
                         const std::vector<WrittenChunk>& chunks) {
  writer.object(kMetadataModule, "TensorStorageMetadata", [&] {
    writer.dict([&] {
      writer.text("properties");
      writer.object(kMetadataModule, "TensorProperties", [&] {
        writer.tuple([&] {
          writer.global("torch", torch_names(info.dtype).dtype);
          writer.call("torch.serialization", "_get_layout", [&] { writer.text("torch.strided"); });
          writer.boolean(false);
          writer.call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { writer.integer(0); });
          writer.boolean(false);
        });
      });
      writer.text("size");
      writer.size(info.shape);
      writer.text("chunks");
      writer.list([&] {
        for (const WrittenChunk& chunk : chunks) {
          writer.object(kMetadataModule, "ChunkStorageMetadata", [&] {
            writer.dict([&] {
              writer.text("offsets");
              writer.size(chunk.begin);
              writer.text("sizes");
              writer.size(chunk.size);
            });
          });
        }
      });
    });
  });
}

void pickle_place(PickleWriter& writer, const std::string& key, const WrittenChunk& chunk,
                  int64_t index) {
  writer.object(kMetadataModule, "MetadataIndex", [&] {
    writer.dict([&] {
      writer.text("fqn");
      writer.text(key);
      writer.text("index");
      writer.integer(index);
      writer.text("offset");
      writer.size(chunk.begin);
    });
  });
  writer.object(kFileModule, "_StorageInfo", [&] {
    writer.dict([&] {
      writer.text("relative_path");
      writer.text(chunk.place.file);
      writer.text("offset");
      writer.integer(chunk.place.offset);
      writer.text("length");
      writer.integer(chunk.place.length);
    });
  });
}

std::string metadata_pickle(const std::map<std::string, StackedTensor>& tensors,
                            const WrittenChunks& chunks) {
  PickleWriter writer;
  writer.object(kMetadataModule, "Metadata", [&] {
    writer.dict([&] {
      writer.text("state_dict_metadata");
      writer.dict([&] {
        for (const auto& [key, tensor] : tensors) {
          writer.text(key);
          pickle_tensor_entry(writer, tensor.info, chunks.at(key));
        }
      });
      writer.text("planner_data");  // where in a nested dict each key stood: at the top
      writer.dict([&] {
        for (const auto& [key, tensor] : tensors) {
          writer.text(key);
          writer.tuple([&, &key = key] { writer.text(key); });  // by name: clang 14 asks for it
        }
      });
      writer.text("storage_data");
      writer.dict([&] {
        for (const auto& [key, parts] : chunks) {
          for (size_t i = 0; i < parts.size(); ++i)
            pickle_place(writer, key, parts[i], static_cast<int64_t>(i));
        }
      });
      writer.text("storage_meta");
      writer.none();
      writer.text("version");
      writer.none();
    });
  });
  return writer.finish();
}

void pickle_value(PickleWriter& writer, const nlohmann::json& value) {
  if (value.is_boolean()) return writer.boolean(value.get<bool>());
  if (value.is_number_integer()) return writer.integer(value.get<int64_t>());
  if (value.is_number()) return writer.real(value.get<double>());
  if (value.is_string()) return writer.text(value.get<std::string>());
  if (value.is_array()) {
    return writer.list([&] {
      for (const auto& item : value) pickle_value(writer, item);
    });
  }
  if (value.is_object()) {
    return writer.dict([&] {
      for (const auto& [key, item] : value.items()) {
        writer.text(key);
        pickle_value(writer, item);
      }
    });
  }
  writer.none();
}

// Replicated state: what Megatron looks for before it takes the weights.
void write_common(const Path& path, const TorchDistWriteOptions& options) {
  PickleWriter writer;
  writer.dict([&] {
    writer.text("checkpoint_version");
    writer.real(3.0);
    writer.text("iteration");
    writer.integer(options.iteration);
    if (options.args.empty()) return;
    writer.text("args");
    writer.object("argparse", "Namespace", [&] { pickle_value(writer, parse_json(options.args)); });
  });
  AtomicFile file(path);
  ZipWriter zip([&](std::span<const std::byte> bytes) { file.write(bytes); });
  write_archive(zip, writer.finish(), /*storage_bytes=*/-1, [] {});
  file.commit();
}

}  // namespace

void write_torch_dist(const TensorSource& source, const Path& folder,
                      const TorchDistWriteOptions& options) {
  PHX_CHECK(!std::filesystem::exists(folder / "metadata.json"), folder.native(),
            " holds a checkpoint already\n  hint: remove it, or choose another folder");
  std::map<std::string, TensorInfo> model;
  for (const auto& [name, info] : source.tensors()) {
    if (!name.starts_with("optimizer.")) model.emplace(name, info);
  }
  PHX_CHECK(!model.empty(), source.description(), " has no weights");
  const auto tensors = stacked(model);
  for (const auto& [key, tensor] : tensors) torch_names(tensor.info.dtype);  // before any writing
  make_folder(folder);

  ChunkFiles files(folder, options.file_bytes);
  WrittenChunks chunks;
  for (const auto& [key, tensor] : tensors) {
    for (const StackedPart& part : tensor.parts) {
      WrittenChunk chunk{Dims(tensor.info.shape.size(), 0), tensor.info.shape, {}};
      std::ranges::copy(part.index, chunk.begin.begin());
      std::fill_n(chunk.size.begin(), part.index.size(), 1);
      chunk.place =
          files.write(source, part.name, model.at(part.name), {tensor.info.dtype, chunk.size});
      chunks[key].push_back(std::move(chunk));
    }
  }
  files.close();
  write_common(folder / "common.pt", options);
  write_file(folder / ".metadata", metadata_pickle(tensors, chunks));
  write_file(folder / "metadata.json",
             "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
             "\"common_backend\": \"torch\", \"common_backend_version\": 1}");
}

}  // namespace phx
