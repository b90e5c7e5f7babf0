#include "phalanx/checkpoint/torch/megatron_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/pickle.h"

namespace phx {
namespace {

constexpr std::string_view kLayers = "decoder.layers.";
constexpr std::string_view kKeyExperts = "mlp.experts.experts.";  // stacked
constexpr std::string_view kExperts = "mlp.experts.";             // one by one
constexpr int64_t kMaxParts = 1 << 20;

// Optimizer state with the model's own shapes; other kinds of it are cut by data-parallel ranks.
constexpr auto kStates = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"optimizer.state.exp_avg.", "optimizer.exp_avg."},
    {"optimizer.state.exp_avg_sq.", "optimizer.exp_avg_sq."},
    {"optimizer.state.fp32_param.", "optimizer.master."},
    {"optimizer.state.param.", "optimizer.master."},
});

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      number < 0)
    return std::nullopt;
  return number;
}

// Splits "a.mlp.experts.linear_fc1.weight7" before the 7.
std::optional<size_t> expert_number_at(std::string_view name) {
  if (name.find(kExperts) == name.npos) return std::nullopt;
  size_t at = name.size();
  while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
  if (at == name.size() || name.size() - at > 9 || at == 0 || name[at - 1] == '.')
    return std::nullopt;
  return at;
}

// A layer's tensor without its numbers, and these as indices.
struct Unnumbered {
  std::string key;
  Dims index;
};

Unnumbered without_expert(const std::string& name) {
  const auto at = expert_number_at(name);
  if (!at) return {name, {}};
  std::string key = name.substr(0, *at);
  key.replace(key.find(kExperts), kExperts.size(), kKeyExperts);
  return {key, {*whole_number(std::string_view(name).substr(*at))}};
}

// Whether all layers 0 .. L - 1 have the same tensors.
bool layers_are_alike(const std::map<std::string, TensorInfo>& tensors) {
  std::map<int64_t, std::map<std::string, TensorInfo>> layers;
  for (const auto& [name, info] : tensors) {
    if (const auto number = layer_number(name))
      layers[number->layer][name.substr(number->end)] = info;
  }
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.dtype == b.second.dtype &&
           a.second.shape == b.second.shape;
  };
  int64_t expected = 0;
  for (const auto& [number, layer] : layers) {
    if (number != expected++) return false;
    if (!std::ranges::equal(layer, layers.begin()->second, same)) return false;
  }
  return !layers.empty();
}

}  // namespace

namespace {

std::optional<LayerNumber> number_behind(std::string_view layers, std::string_view name) {
  if (!name.starts_with(layers)) return std::nullopt;
  const size_t end = name.find('.', layers.size());
  if (end == name.npos) return std::nullopt;
  const auto number = whole_number(name.substr(layers.size(), end - layers.size()));
  if (!number) return std::nullopt;
  return LayerNumber{*number, layers.size(), end};
}

}  // namespace

std::optional<LayerNumber> layer_number(std::string_view name) {
  return number_behind(kLayers, name);
}

std::optional<LayerNumber> layer_ahead(std::string_view name) {
  return number_behind("mtp.layers.", name);
}

std::optional<ExpertNumber> expert_number(std::string_view name) {
  const auto at = expert_number_at(name);
  if (!at) return std::nullopt;
  return ExpertNumber{*whole_number(name.substr(*at)), *at};
}

bool holds_experts(std::string_view name) {
  return name.find(kExperts) != name.npos && !expert_number_at(name);
}

bool is_load_of_experts(std::string_view name) {
  return name.ends_with("mlp.router.global_tokens_per_expert");
}

bool is_buffer(std::string_view name) {
  return name.ends_with("mlp.router.expert_bias") || is_load_of_experts(name);
}

std::vector<StackedPart> parts_of_key(const std::string& key, const Dims& shape) {
  std::string name = key, prefix;
  for (const auto& [theirs, ours] : kStates) {
    if (!key.starts_with(theirs)) continue;
    prefix = ours;
    name = key.substr(theirs.size());
  }
  if (name.starts_with("optimizer.") || name.find("_extra_state") != name.npos) return {};

  const bool layers = name.starts_with(kLayers) && !layer_number(name);
  const size_t experts_at = name.find(kKeyExperts);
  const bool experts = experts_at != name.npos;
  const size_t axes = (layers ? 1 : 0) + (experts ? 1 : 0);
  PHX_CHECK(shape.size() >= axes, printable(key), " is ", text_of(shape), ", but should have ",
            axes, " axes for layers and experts");
  const int64_t num_layers = layers ? shape[0] : 1;
  const int64_t num_experts = experts ? shape[axes - 1] : 1;
  PHX_CHECK(
      num_layers <= kMaxParts && num_experts <= kMaxParts && num_layers * num_experts <= kMaxParts,
      printable(key), " has ", num_layers, " layers with ", num_experts, " experts");
  if (experts) name.replace(experts_at, kKeyExperts.size(), kExperts);

  std::vector<StackedPart> parts;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::string full = prefix + name;
    if (layers) full.insert(prefix.size() + kLayers.size(), std::to_string(layer) + ".");
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      StackedPart part{full, {}};
      if (layers) part.index.push_back(layer);
      if (experts) part.index.push_back(expert);
      if (experts) part.name += std::to_string(expert);
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::map<std::string, StackedTensor> stacked(const std::map<std::string, TensorInfo>& tensors,
                                             bool stack_layers) {
  const bool alike = stack_layers && layers_are_alike(tensors);
  std::map<std::string, StackedTensor> result;
  for (const auto& [name, info] : tensors) {
    Unnumbered key = without_expert(name);
    const auto number = layer_number(key.key);
    if (alike && number) {
      key.key.erase(number->begin, number->end + 1 - number->begin);
      key.index.insert(key.index.begin(), number->layer);
    }
    StackedTensor& tensor = result[key.key];
    TensorInfo whole = info;
    whole.shape.insert(whole.shape.begin(), key.index.begin(), key.index.end());
    for (size_t i = 0; i < key.index.size(); ++i)
      whole.shape[i] = std::max(key.index[i] + 1, tensor.parts.empty() ? 0 : tensor.info.shape[i]);
    const size_t axes = key.index.size();
    PHX_CHECK(tensor.parts.empty() || (tensor.info.dtype == whole.dtype &&
                                       tensor.info.shape.size() == whole.shape.size() &&
                                       std::equal(whole.shape.begin() + axes, whole.shape.end(),
                                                  tensor.info.shape.begin() + axes)),
              name, " differs in type or shape from the others that ", key.key, " would hold");
    tensor.info = whole;
    tensor.parts.push_back({name, key.index});
  }
  for (const auto& [key, tensor] : result) {
    const size_t axes = tensor.parts[0].index.size();
    int64_t expected = 1;
    for (size_t i = 0; i < axes; ++i) expected *= tensor.info.shape[i];
    PHX_CHECK(expected == static_cast<int64_t>(tensor.parts.size()), key, " would be ",
              text_of(tensor.info.shape), ", but only ", tensor.parts.size(),
              " tensors are there for it");
  }
  return result;
}

std::optional<int> tensor_parallel_axis(std::string_view name) {
  struct Cut {
    std::string_view ending;
    int axis;
  };
  // The longest that fits would be right; none is the ending of another with a different axis.
  static constexpr auto kCuts = std::to_array<Cut>({
      {"word_embeddings.weight", 0},
      {"output_layer.weight", 0},
      {"linear_qkv.weight", 0},
      {"linear_qkv.bias", 0},
      {"linear_q_proj.weight", 0},
      {"linear_q_up_proj.weight", 0},
      {"linear_kv_up_proj.weight", 0},
      {"core_attention.softmax_offset", 0},
      {"linear_fc1.weight", 0},
      {"linear_fc1.bias", 0},
      {"eh_proj.weight", 0},
      {"linear_proj.weight", 1},
      {"linear_fc2.weight", 1},
  });
  if (const auto at = expert_number_at(name)) name = name.substr(0, *at);
  for (const Cut& cut : kCuts) {
    if (name == cut.ending) return cut.axis;
    if (name.ends_with(cut.ending) && name[name.size() - cut.ending.size() - 1] == '.')
      return cut.axis;
  }
  return std::nullopt;
}

std::string fc2_of_fc1(std::string_view name) {
  constexpr std::string_view kFc1 = "linear_fc1.";
  const size_t at = name.rfind(kFc1);
  if (at == name.npos) return "";
  std::string fc2(name);
  fc2.replace(at, kFc1.size(), "linear_fc2.");
  const size_t bias = fc2.rfind(".bias");
  if (bias != fc2.npos) fc2.replace(bias, 5, ".weight");
  return fc2;
}

namespace {

constexpr auto kNorms = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
    {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"},
});

}  // namespace

std::string with_fused_norms(std::string_view name) {
  for (const auto& [separate, fused] : kNorms)
    if (name.starts_with(separate)) return str_cat(fused, name.substr(separate.size()));
  return std::string(name);
}

std::string with_separate_norms(std::string_view name) {
  for (const auto& [separate, fused] : kNorms)
    if (name.starts_with(fused)) return str_cat(separate, name.substr(fused.size()));
  return std::string(name);
}

bool has_vocabulary_rows(std::string_view name) {
  return name.ends_with("embedding.word_embeddings.weight") ||
         name.ends_with("output_layer.weight");
}

}  // namespace phx
