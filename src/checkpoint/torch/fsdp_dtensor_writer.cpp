#include "phalanx/checkpoint/torch/fsdp_dtensor_writer.h"

#include <algorithm>
#include <map>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/torch_dist_files_writer.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"
#include "phalanx/checkpoint/torch/torch_object.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kOptimizer = "optimizer.";

// Modules in a layer have other names with --transformer-impl local: a run of either kind finds
// what it looks for.
std::vector<std::string> their_names(const std::string& name) {
  const auto number = layer_number(name);
  if (!number) return {name};
  const std::string layer = name.substr(0, number->end + 1);
  const std::string separate = layer + with_separate_norms(name.substr(layer.size()));
  if (separate == name) return {name};
  return {name, separate};
}

class Writer {
 public:
  Writer(const TensorSource& source, const Path& folder, const FsdpWriteOptions& options)
      : source_(source), options_(options), files_(folder, options.file_bytes) {}

  TorchDistMetadata write() {
    const Json common = options_.common.empty() ? Json::object() : parse_json(options_.common);
    add_object("checkpoint_version", 3.0);
    add_object("iteration", options_.iteration);
    add_object("num_floating_point_operations_so_far", 0);
    add_object("args", {{"$namespace", parse_json(options_.args)}});
    const Json schedules = common.value("opt_param_scheduler", Json::object());
    for (const auto& [key, value] : schedules.items())
      add_object("opt_param_scheduler." + key, value);
    for (const auto& [name, info] : source_.tensors()) {
      if (name.starts_with(kOptimizer) || is_load_of_experts(name)) continue;
      const bool state = options_.optimizer && !is_buffer(name);
      add_tensor(state ? str_cat("optimizer.master.", name) : name, name, "model.module.", "");
      if (!state) continue;
      for (const char* moment : {"exp_avg", "exp_avg_sq"})
        add_tensor(str_cat(kOptimizer, moment, ".", name), name,
                   str_cat("optimizer.state.", wrappers()), str_cat(".", moment));
      add_group(name, info, common);
    }
    files_.close();
    return std::move(metadata_);
  }

 private:
  std::string wrappers() const {
    return options_.in_16_bits ? "module.module.module." : "module.module.";
  }

  void add_object(const std::string& key, const Json& value) {
    metadata_.objects[key] = files_.write(saved_object(value));
  }

  // `stored`: the tensor of the source, of the parameter `name`.
  void add_tensor(const std::string& stored, const std::string& name, const std::string& before,
                  const std::string& behind) {
    const auto found = source_.tensors().find(stored);
    PHX_CHECK(found != source_.tensors().end() && found->second.dtype == DType::f32,
              source_.description(), " has no fp32 ", stored, ", so that ", name,
              " cannot be written for Megatron-FSDP");
    const Box whole = whole_box(found->second.shape);
    const auto add = [&](const Box& box, std::vector<int64_t> shape, const char* half) {
      TorchDistTensor tensor{{DType::f32, shape}, {}};
      tensor.chunks.push_back({whole_box(shape), files_.write(source_, stored, box, tensor.info)});
      for (const std::string& theirs : their_names(name))
        metadata_.tensors[str_cat(before, theirs, half, behind)] = tensor;
    };
    if (is_gated(name)) {
      Box half = whole;
      half.size[0] /= 2;
      add(half, half.size, "_w");
      half.begin[0] = half.size[0];
      return add(half, half.size, "_v");
    }
    std::vector<int64_t> shape = found->second.shape;
    if (has_vocabulary_rows(name) && !shape.empty())
      shape[0] = std::max(shape[0], options_.padded_vocab_size);
    add(whole, shape, "");
  }

  // Whether it is [gate; up]: these are two tensors there.
  bool is_gated(const std::string& name) const {
    const auto fc2 = source_.tensors().find(fc2_of_fc1(name));
    if (fc2 == source_.tensors().end() || fc2->second.shape.size() != 2) return false;
    return source_.tensors().at(name).shape.at(0) == 2 * fc2->second.shape[1];
  }

  // Beside every parameter stand the values of its group: matrices decay, and the word embedding
  // and the output layer may have a learning rate of their own.
  void add_group(const std::string& name, const TensorInfo& info, const Json& common) {
    const Json& groups = common.at("optimizer").at("param_groups");
    const Json args = parse_json(options_.args);
    const bool norm_of_heads =
        name.find("q_layernorm.") != name.npos || name.find("k_layernorm.") != name.npos;
    const bool decays =
        info.shape.size() > 1 || (norm_of_heads && args.value("apply_wd_to_qk_layernorm", false));
    const size_t first = has_vocabulary_rows(name) && groups.size() > 2 ? 2 : 0;  // decoupled_lr
    const size_t group = first + (decays ? 0 : 1);
    auto [places, is_new] = groups_.try_emplace(group);
    if (is_new)
      for (const auto& [key, value] : groups.at(group).items())
        places->second[key] = files_.write(saved_object(value));
    for (const std::string& theirs : their_names(name))
      for (const auto& [key, place] : places->second)
        metadata_.objects[str_cat("optimizer.param_to_group_meta.", wrappers(), theirs, ".", key)] =
            place;
  }

  const TensorSource& source_;
  const FsdpWriteOptions& options_;
  TorchDistFilesWriter files_;
  TorchDistMetadata metadata_;
  std::map<size_t, std::map<std::string, TorchDistPlace>> groups_;
};

}  // namespace

void write_fsdp_dtensor(const TensorSource& source, const Path& folder,
                        const FsdpWriteOptions& options) {
  PHX_CHECK(!std::filesystem::exists(folder / ".metadata"), folder.native(),
            " holds a checkpoint already\n  hint: remove it, or choose another folder");
  make_folder(folder);
  const TorchDistMetadata metadata = Writer(source, folder, options).write();
  write_file(folder / ".metadata", pickled_metadata(metadata));
}

}  // namespace phx
