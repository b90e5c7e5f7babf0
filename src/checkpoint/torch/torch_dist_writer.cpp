#include "phalanx/checkpoint/torch/torch_dist_writer.h"

#include <algorithm>
#include <memory>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/torch_dist_files_writer.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"
#include "phalanx/checkpoint/torch/torch_object.h"

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

  TorchDistFilesWriter files(folder, options.file_bytes);
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
      chunk.place = files.write(source, part.name, whole_box(infos.at(part.name).shape),
                                {tensor.info.dtype, chunk.box.size});
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
