#include "phalanx/checkpoint/torch/fsdp_dtensor.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/tensor_parts.h"

namespace phx {
namespace {

constexpr std::string_view kModel = "model.", kWrapper = "module.", kOptimizer = "optimizer.",
                           kState = "optimizer.state.", kGroups = "optimizer.param_to_group_meta.",
                           kStep = ".step", kScheduler = "opt_param_scheduler.";
constexpr std::string_view kGate = "_w", kUp = "_v";
constexpr std::string_view kMaster = "optimizer.master.";
constexpr std::string_view kMoments[] = {".exp_avg", ".exp_avg_sq"};

// The model stands within wrappers, each of which adds its "module.".
std::string_view unwrapped(std::string_view name) {
  while (name.starts_with(kWrapper)) name.remove_prefix(kWrapper.size());
  return name;
}

// Whether `layer`, "decoder.layers.3." say, has experts: then its second norm is a module of its
// own in every implementation of Megatron's.
bool has_experts(const TorchDistMetadata& metadata, std::string_view layer) {
  return metadata.tensors.contains(str_cat(kModel, kWrapper, layer, "mlp.router.weight"));
}

// "decoder.layers.3.mlp.linear_fc1.weight", of modules with --transformer-impl local too.
std::string our_name(const TorchDistMetadata& metadata, std::string_view key) {
  constexpr std::string_view kInside = "transformer_layer.";  // of multi-token prediction
  const std::string_view name = unwrapped(key);
  auto number = layer_number(name);
  if (!number) number = layer_ahead(name);
  if (!number) return std::string(name);
  size_t inside = number->end + 1;
  if (name.substr(inside).starts_with(kInside)) inside += kInside.size();
  const std::string_view layer = name.substr(0, inside), rest = name.substr(inside);
  if (rest.starts_with("pre_mlp_layernorm.") && has_experts(metadata, layer))
    return std::string(name);
  return str_cat(layer, with_fused_norms(rest));
}

// A key without what stands behind the parameter's name: ".exp_avg", say.
std::string_view parameter_of(std::string_view key) {
  for (const std::string_view moment : kMoments)
    if (key.ends_with(moment)) return key.substr(0, key.size() - moment.size());
  return key;
}

// Of a gated fc1 the rows of the gate have the name with _w at its end, those behind it with _v.
struct Half {
  std::string other;  // the key of the other half
  bool second;
};
std::optional<Half> half_of(const std::string& key) {
  const std::string_view parameter = parameter_of(key);
  const bool second = parameter.ends_with(kUp);
  if (parameter.find("linear_fc1.") == parameter.npos || (!second && !parameter.ends_with(kGate)))
    return std::nullopt;
  Half half{key, second};
  half.other.replace(parameter.size() - kUp.size(), kUp.size(), second ? kGate : kUp);
  return half;
}

std::string_view without_half(std::string_view parameter) {
  return half_of(std::string(parameter)) ? parameter.substr(0, parameter.size() - kUp.size())
                                         : parameter;
}

// Our exports have such a norm under both names.
bool has_other_key(const TorchDistMetadata& metadata, const std::string& key) {
  const size_t layers = key.find("decoder.layers.");
  if (layers == key.npos) return false;
  const auto number = layer_number(std::string_view(key).substr(layers));
  if (!number) return false;
  const size_t inside = layers + number->end + 1;
  const std::string other = key.substr(0, inside) + with_fused_norms(key.substr(inside));
  return other != key && metadata.tensors.contains(other);
}

}  // namespace

bool FsdpCheckpoint::is_one(const Path& path) {
  return std::filesystem::exists(path / ".metadata") &&
         !std::filesystem::exists(path / "metadata.json");
}

FsdpCheckpoint::FsdpCheckpoint(const Path& path, const TorchReadOptions& options)
    : path_(path), metadata_(TorchDistMetadata::read(path / ".metadata")), files_(path) {
  const bool wrapped = std::ranges::any_of(metadata_.tensors, [](const auto& item) {
    return item.first.starts_with(str_cat(kModel, kWrapper));
  });
  PHX_CHECK(
      wrapped, path.native(),
      " has a .metadata without a metadata.json, and none of its tensors is called "
      "model.module.*: it is no checkpoint of Megatron-FSDP (--ckpt-format fsdp_dtensor), and "
      "torch_dcp is not read\n  hint: save it with --ckpt-format torch_dist");
  open_files(options.optimizer);
  read_common();
  add_tensors(options);
}

void FsdpCheckpoint::open_files(bool optimizer) {
  for (const auto& [name, tensor] : metadata_.tensors) {
    if (!optimizer && name.starts_with(kOptimizer)) continue;
    for (const TorchDistChunk& chunk : tensor.chunks) files_.open(name, chunk.place);
  }
}

// What torch_dist keeps in one object: {"args": .., "iteration": .., "opt_param_scheduler": {..}}.
void FsdpCheckpoint::read_common() {
  nlohmann::json common = nlohmann::json::object();
  const auto value_of = [&](const std::string& key, const TorchDistPlace& place) {
    files_.open(key, place);
    const TorchArchive archive = files_.archive_at(key, place);
    return parse_json(pickle_json(archive.root(), archive));
  };
  std::set<nlohmann::json> steps;
  for (const auto& [key, place] : metadata_.objects) {
    if (key.starts_with(kGroups)) {
      if (key.ends_with(kStep)) steps.insert(value_of(key, place));
      continue;
    }
    if (key == "args" || key == "iteration" || key == "checkpoint_version")
      common[key] = value_of(key, place);
    else if (key.starts_with(kScheduler))
      common["opt_param_scheduler"][key.substr(kScheduler.size())] = value_of(key, place);
  }
  // Every parameter has Adam's step beside it. Where they differ there is no such number.
  if (steps.size() == 1)
    common["optimizer"]["param_groups"] = nlohmann::json::array({{{"step", *steps.begin()}}});
  common_ = json_text(common);
}

void FsdpCheckpoint::add(const std::string& key, const std::string& name) {
  const TorchDistTensor& tensor = metadata_.tensors.at(key);
  const std::string metadata = (path_ / ".metadata").native();
  TensorInfo info = tensor.info;
  int64_t row = 0;
  if (const auto half = half_of(key)) {
    const auto other = metadata_.tensors.find(half->other);
    PHX_CHECK(other != metadata_.tensors.end() && other->second.info == info && !info.shape.empty(),
              metadata, ": ", printable(key), " has no other half ", printable(half->other),
              " of its type and shape");
    if (half->second) row = info.shape[0];
    info.shape[0] *= 2;
  }
  std::vector<Rows>& rows = parts_[name];
  PHX_CHECK(rows.empty() || (infos_.at(name) == info && rows.size() == 1 && rows[0].row != row),
            metadata, ": ", printable(name), " is there twice");
  rows.push_back({&tensor, row});
  infos_[name] = info;
}

void FsdpCheckpoint::add_tensors(const TorchReadOptions& options) {
  for (const auto& [key, tensor] : metadata_.tensors) {
    if (has_other_key(metadata_, key)) continue;
    const std::string_view parameter = without_half(parameter_of(key));
    if (key.starts_with(kModel) && key.find("_extra_state") == key.npos) {
      PHX_CHECK(key.find(".local_experts.") == key.npos, path_.native(),
                " has experts that are modules of their own (--transformer-impl local without "
                "--moe-grouped-gemm), which are read from torch_dist folders only\n"
                "  hint: save it with --ckpt-format torch_dist");
      add(key, our_name(metadata_, parameter.substr(kModel.size())));
    }
    if (!key.starts_with(kState)) continue;
    optimizer_saved_ = true;
    if (!options.optimizer || parameter_of(key).size() == key.size()) continue;
    const std::string_view moment = std::string_view(key).substr(parameter_of(key).size() + 1);
    add(key,
        str_cat(kOptimizer, moment, ".", our_name(metadata_, parameter.substr(kState.size()))));
  }
  for (auto& [name, info] : infos_)
    if (options.vocab_size > 0 && has_vocabulary_rows(name) && !info.shape.empty())
      info.shape[0] = std::min(info.shape[0], options.vocab_size);
  add_masters(options.optimizer);
}

void FsdpCheckpoint::add_masters(bool optimizer) {
  const nlohmann::json args = parse_json(common_).value("args", nlohmann::json::object());
  const auto has = [&](const char* flag) {
    return args.is_object() && args.value(flag, nlohmann::json()) == true;
  };
  const DType dtype = has("bf16") ? DType::bf16 : has("fp16") ? DType::f16 : DType::f32;
  // Weights without it would go on with a loss scale that begins anew.
  if (optimizer && optimizer_saved_ && dtype == DType::f16) {
    why_no_optimizer_ = str_cat(path_.native(),
                                ": where an fp16 run of Megatron-FSDP keeps its loss "
                                "scale is not known, so that its optimizer state is not read");
    std::erase_if(infos_, [](const auto& item) { return item.first.starts_with(kOptimizer); });
    optimizer = false;
  }
  TensorInfos masters;
  for (auto& [name, info] : infos_) {
    if (name.starts_with(kOptimizer) || is_buffer(name) || info.dtype != DType::f32) continue;
    masters[str_cat(kMaster, name)] = info;
    info.dtype = dtype;
  }
  if (optimizer && optimizer_saved_) infos_.merge(masters);
}

void FsdpCheckpoint::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = infos_.find(name);
  PHX_CHECK(found != infos_.end(), path_.native(), " has no tensor ", name, " among its ",
            infos_.size());
  const TensorInfo& info = found->second;
  check_box(str_cat(path_.native(), ": ", name), info, box, out.size());
  const auto& rows = parts_.at(name.starts_with(kMaster) ? name.substr(kMaster.size()) : name);
  if (rows[0].tensor->info.dtype == info.dtype) return copy_rows(name, rows, box, out);
  std::vector<float> wide(static_cast<size_t>(*num_elements(box.size)));
  copy_rows(name, rows, box, std::as_writable_bytes(std::span(wide)));
  for_float_dtype(info.dtype, [&]<class T>() {
    for (size_t i = 0; i < wide.size(); ++i) {
      const T rounded(wide[i]);
      std::memcpy(out.data() + i * sizeof rounded, &rounded, sizeof rounded);
    }
  });
}

void FsdpCheckpoint::copy_rows(const std::string& name, const std::vector<Rows>& rows,
                               const Box& box, std::span<std::byte> out) const {
  if (rows.size() == 1) return files_.copy(name, *rows[0].tensor, box, out);
  for (const Rows& part : rows) {
    Box held = whole_box(part.tensor->info.shape);
    held.begin[0] = part.row;
    auto both = intersection(held, box);
    if (!both) continue;
    // Rows of the box are one behind the other, and these are whole.
    const auto row_bytes = static_cast<int64_t>(out.size()) / box.size[0];
    const auto to = out.subspan(static_cast<size_t>((both->begin[0] - box.begin[0]) * row_bytes),
                                static_cast<size_t>(both->size[0] * row_bytes));
    both->begin[0] -= part.row;
    files_.copy(name, *part.tensor, {both->begin, both->size}, to);
  }
}

std::string FsdpCheckpoint::description() const {
  return str_cat(path_.filename().native(), " (fsdp_dtensor, ", infos_.size(), " tensors)");
}

}  // namespace phx
