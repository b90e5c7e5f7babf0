#include "phalanx/checkpoint/torch/torch_dist_writer.h"

#include <algorithm>
#include <memory>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"
#include "phalanx/checkpoint/torch/torch_object.h"
#include "phalanx/checkpoint/torch/zip.h"

namespace phx {
namespace {

// Our names of Adam's state beside Megatron's; the masters have one with the distributed optimizer
// and another without.
struct State {
  std::string_view ours;
  std::vector<std::string_view> theirs;
};
const std::vector<State>& states() {
  static const std::vector<State> list = {
      {"optimizer.exp_avg.", {"optimizer.state.exp_avg."}},
      {"optimizer.exp_avg_sq.", {"optimizer.state.exp_avg_sq."}},
      {"optimizer.master.", {"optimizer.state.param.", "optimizer.state.fp32_param."}}};
  return list;
}

constexpr std::string_view kOptimizer = "optimizer.";
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

// The .distcp files, one after the other.
class ChunkFiles {
 public:
  ChunkFiles(const Path& folder, int64_t file_bytes) : folder_(folder), file_bytes_(file_bytes) {}

  // The tensor as `stored`, which may have more rows than `info`: zeros.
  TorchDistPlace write(const TensorSource& source, const std::string& name, const TensorInfo& info,
                       const TensorInfo& stored) {
    TorchDistPlace place = begin();
    ZipWriter zip([&](std::span<const std::byte> bytes) { file_->write(bytes); });
    const int64_t elements = *num_elements(stored.shape);
    const int64_t bytes = elements * size_of(stored.dtype);
    zip.add("archive/data.pkl", bytes_of(tensor_pickle(stored, elements)));
    zip.add("archive/byteorder", bytes_of("little"));
    zip.begin("archive/data/0", static_cast<uint64_t>(bytes));
    int64_t written = 0;
    for_pieces(info, [&](const Box& box, int64_t size) {
      buffer_.resize(static_cast<size_t>(size));
      source.read(name, box, buffer_);
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

  TorchDistPlace write(const std::string& object) {
    TorchDistPlace place = begin();
    file_->write(bytes_of(object));
    place.length = file_->size() - place.offset;
    return place;
  }

  void close() {
    if (file_ != nullptr) file_->commit();
    file_.reset();
  }

 private:
  TorchDistPlace begin() {
    if (file_ != nullptr && file_->size() >= file_bytes_) close();
    if (file_ == nullptr)
      file_ = std::make_unique<AtomicFile>(folder_ / str_cat("__0_", count_++, ".distcp"));
    return {file_->path().filename().native(), file_->size(), 0};
  }

  Path folder_;
  int64_t file_bytes_;
  int count_ = 0;
  std::unique_ptr<AtomicFile> file_;
  std::vector<std::byte> buffer_;
};

// What becomes a key: the weights, biases of experts, and the state under our names of it.
std::map<std::string, StackedTensor> tensors_to_write(const std::map<std::string, TensorInfo>& all,
                                                      const TorchDistWriteOptions& options,
                                                      const std::string& from) {
  std::map<std::string, TensorInfo> model;
  for (const auto& [name, info] : all)
    if (!name.starts_with(kOptimizer) && !is_load_of_experts(name)) model.emplace(name, info);
  PHX_CHECK(!model.empty(), from, " has no weights");
  auto tensors = stacked(model, options.stack_layers);
  for (auto& [key, tensor] : tensors) {
    if (has_vocabulary_rows(key) && !tensor.info.shape.empty())
      tensor.info.shape[0] = std::max(tensor.info.shape[0], options.padded_vocab_size);
  }
  if (!options.optimizer) return tensors;
  const auto weights = tensors;
  for (const State& state : states()) {
    for (const auto& [key, tensor] : weights) {
      if (is_buffer(key)) continue;
      StackedTensor values = tensor;
      values.info.dtype = DType::f32;
      for (StackedPart& part : values.parts) {
        const auto found = all.find(str_cat(state.ours, part.name));
        PHX_CHECK(found != all.end() && found->second.dtype == DType::f32, from, " has no fp32 ",
                  state.ours, part.name, ", so that its optimizer state cannot be written");
        part.name = found->first;
      }
      tensors[str_cat(state.theirs[0], key)] = std::move(values);
    }
  }
  return tensors;
}

// The norm before experts has another key with --transformer-impl local: the same tensors once
// more.
void add_norm_aliases(TorchDistMetadata& metadata) {
  constexpr std::string_view kOwn = "pre_mlp_layernorm.", kFused = "mlp.linear_fc1.layer_norm_";
  const auto written = metadata.tensors;
  for (const auto& [key, tensor] : written) {
    const size_t at = key.rfind(kOwn);
    if (at == key.npos) continue;
    std::string alias = key;
    metadata.tensors[alias.replace(at, kOwn.size(), kFused)] = tensor;
  }
}

// Modules of the layers have a place for the state of 8-bit numbers, which Megatron asks for
// whether they use it or not.
std::vector<std::string> extra_states(const std::map<std::string, StackedTensor>& tensors) {
  std::set<std::pair<std::string, Dims>> modules;  // and how many layers and experts are stacked
  for (const auto& [key, tensor] : tensors) {
    if (!key.starts_with("decoder.") && !key.starts_with("mtp.")) continue;
    const std::string module = key.substr(0, key.rfind('.'));
    const auto begin = tensor.info.shape.begin();
    const Dims stacks(begin, begin + static_cast<ptrdiff_t>(tensor.parts[0].index.size()));
    modules.emplace(module, stacks);
    if (module.ends_with("linear_qkv"))
      modules.emplace(module.substr(0, module.rfind('.')) + ".core_attention", stacks);
  }
  std::vector<std::string> keys;
  for (const auto& [module, stacks] : modules) {
    const Dims sizes = stacks.empty() ? Dims{1} : stacks;
    std::string of;  // "2.4"
    for (const int64_t size : sizes) of += str_cat(of.empty() ? "" : ".", size);
    for (int64_t i = 0; i < *num_elements(sizes); ++i) {
      std::string place;
      for (int64_t left = i, axis = std::ssize(sizes) - 1; axis >= 0; --axis) {
        place = str_cat(left % sizes[size_t(axis)], place.empty() ? "" : ".", place);
        left /= sizes[size_t(axis)];
      }
      keys.push_back(str_cat(module, "._extra_state/shard_", place, "_", of));
    }
  }
  return keys;
}

// Replicated state: what Megatron looks for before it takes the weights.
nlohmann::json common_state(const TorchDistWriteOptions& options) {
  nlohmann::json common =
      options.common.empty() ? nlohmann::json::object() : parse_json(options.common);
  common["checkpoint_version"] = 3.0;
  common["iteration"] = options.iteration;
  if (!options.args.empty()) common["args"]["$namespace"] = parse_json(options.args);
  return common;
}

}  // namespace

void write_torch_dist(const TensorSource& source, const Path& folder,
                      const TorchDistWriteOptions& options) {
  PHX_CHECK(!std::filesystem::exists(folder / "metadata.json"), folder.native(),
            " holds a checkpoint already\n  hint: remove it, or choose another folder");
  const auto& infos = source.tensors();
  const auto tensors = tensors_to_write(infos, options, source.description());
  for (const auto& [key, tensor] : tensors) torch_names(tensor.info.dtype);  // before any writing
  make_folder(folder);

  ChunkFiles files(folder, options.file_bytes);
  TorchDistMetadata metadata;
  const TorchDistPlace nothing = files.write(saved_object(nlohmann::json::array({nullptr})));
  for (const std::string& key : extra_states(tensors)) metadata.objects[key] = nothing;
  for (const auto& [key, tensor] : tensors) {
    TorchDistTensor& written = metadata.tensors[key];
    written.info = tensor.info;
    for (const StackedPart& part : tensor.parts) {
      TorchDistChunk chunk{{Dims(tensor.info.shape.size(), 0), tensor.info.shape}, {}};
      std::ranges::copy(part.index, chunk.box.begin.begin());
      std::fill_n(chunk.box.size.begin(), part.index.size(), 1);
      chunk.place =
          files.write(source, part.name, infos.at(part.name), {tensor.info.dtype, chunk.box.size});
      written.chunks.push_back(std::move(chunk));
    }
  }
  files.close();
  for (const State& state : states()) {
    for (const auto& [key, tensor] : tensors) {
      if (!key.starts_with(state.theirs[0])) continue;
      for (size_t i = 1; i < state.theirs.size(); ++i)
        metadata.tensors[str_cat(state.theirs[i], key.substr(state.theirs[0].size()))] =
            metadata.tensors.at(key);
    }
  }
  add_norm_aliases(metadata);
  write_file(folder / "common.pt", saved_object(common_state(options)));
  write_file(folder / ".metadata", pickled_metadata(metadata));
  write_file(folder / "metadata.json",
             "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
             "\"common_backend\": \"torch\", \"common_backend_version\": 1}");
}

}  // namespace phx
