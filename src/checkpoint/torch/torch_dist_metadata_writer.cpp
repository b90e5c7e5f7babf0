#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"

#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_archive.h"

namespace phx {
namespace {

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFileModule = "torch.distributed.checkpoint.filesystem";

void pickle_tensor_entry(PickleWriter& writer, const TorchDistTensor& tensor) {
  writer.object(kMetadataModule, "TensorStorageMetadata", [&] {
    writer.dict([&] {
      writer.text("properties");
      writer.object(kMetadataModule, "TensorProperties", [&] {
        writer.tuple([&] {
          writer.global("torch", torch_names(tensor.info.dtype).dtype);
          writer.call("torch.serialization", "_get_layout", [&] { writer.text("torch.strided"); });
          writer.boolean(false);
          writer.call(kMetadataModule, "_MEM_FORMAT_ENCODING", [&] { writer.integer(0); });
          writer.boolean(false);
        });
      });
      writer.text("size");
      writer.size(tensor.info.shape);
      writer.text("chunks");
      writer.list([&] {
        for (const TorchDistChunk& chunk : tensor.chunks) {
          writer.object(kMetadataModule, "ChunkStorageMetadata", [&] {
            writer.dict([&] {
              writer.text("offsets");
              writer.size(chunk.box.begin);
              writer.text("sizes");
              writer.size(chunk.box.size);
            });
          });
        }
      });
    });
  });
}

// `offset`: of a tensor's chunk; null: of an object.
void pickle_place(PickleWriter& writer, const std::string& key, const Dims* offset, int64_t index,
                  const TorchDistPlace& place) {
  writer.object(kMetadataModule, "MetadataIndex", [&] {
    writer.dict([&] {
      writer.text("fqn");
      writer.text(key);
      writer.text("index");
      if (offset != nullptr)
        writer.integer(index);
      else
        writer.none();
      writer.text("offset");
      if (offset != nullptr)
        writer.size(*offset);
      else
        writer.none();
    });
  });
  writer.object(kFileModule, "_StorageInfo", [&] {
    writer.dict([&] {
      writer.text("relative_path");
      writer.text(place.file);
      writer.text("offset");
      writer.integer(place.offset);
      writer.text("length");
      writer.integer(place.length);
    });
  });
}

}  // namespace

std::string pickled_metadata(const TorchDistMetadata& metadata) {
  PickleWriter writer;
  const auto every_key = [&](auto&& tensor, auto&& object) {
    for (const auto& [key, value] : metadata.tensors) tensor(key, value);
    for (const auto& [key, value] : metadata.objects) object(key, value);
  };
  writer.object(kMetadataModule, "Metadata", [&] {
    writer.dict([&] {
      writer.text("state_dict_metadata");
      writer.dict([&] {
        every_key(
            [&](const std::string& key, const TorchDistTensor& tensor) {
              writer.text(key);
              pickle_tensor_entry(writer, tensor);
            },
            [&](const std::string& key, const TorchDistPlace&) {
              writer.text(key);
              writer.object(kMetadataModule, "BytesStorageMetadata", [&] { writer.dict([] {}); });
            });
      });
      writer.text("planner_data");  // where in a nested dict each key stood: at the top
      writer.dict([&] {
        const auto at_top = [&](const std::string& key, const auto&) {
          writer.text(key);
          writer.tuple([&] { writer.text(key); });
        };
        every_key(at_top, at_top);
      });
      writer.text("storage_data");
      writer.dict([&] {
        every_key(
            [&](const std::string& key, const TorchDistTensor& tensor) {
              for (size_t i = 0; i < tensor.chunks.size(); ++i)
                pickle_place(writer, key, &tensor.chunks[i].box.begin, static_cast<int64_t>(i),
                             tensor.chunks[i].place);
            },
            [&](const std::string& key, const TorchDistPlace& place) {
              pickle_place(writer, key, nullptr, 0, place);
            });
      });
      writer.text("storage_meta");
      writer.none();
      writer.text("version");
      writer.none();
    });
  });
  return writer.finish();
}

}  // namespace phx
