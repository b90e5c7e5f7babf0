#include "phalanx/convert/tensor_map.h"

#include <charconv>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/models/model_family.h"

namespace phx {
namespace {

constexpr std::string_view kLayers = "decoder.layers.", kAhead = "mtp.layers.",
                           kInside = "transformer_layer.";

struct LayerName {
  std::string layer;   // "7", among the decoder's layers and those ahead
  std::string rest;    // "mlp.linear_fc1.weight"
  bool ahead = false;  // around the transformer layer of one for multi-token prediction
};

std::optional<LayerName> layer_name(const std::string& name, int64_t num_layers) {
  const bool ahead = name.starts_with(kAhead);
  if (!ahead && !name.starts_with(kLayers)) return std::nullopt;
  const size_t begin = ahead ? kAhead.size() : kLayers.size(), dot = name.find('.', begin);
  if (dot == std::string::npos) return std::nullopt;
  LayerName found{name.substr(begin, dot - begin), name.substr(dot + 1)};
  if (!ahead) return found;
  found.layer = std::to_string(num_layers + std::stoll(found.layer));
  found.ahead = !found.rest.starts_with(kInside);
  if (!found.ahead) found.rest.erase(0, kInside.size());
  return found;
}

const TensorRow* find_row(const std::vector<TensorRow>& rows, const std::string& ours) {
  for (const TensorRow& row : rows)
    if (ours == row.ours) return &row;
  return nullptr;
}

struct Counts {
  explicit Counts(const TransformerConfig& config)
      : n(config.num_attention_heads),
        g(config.query_groups()),
        d(config.head_dim()),
        e(config.moe.num_experts.value_or(0)) {}
  int64_t n, g, d, e;
};

// Megatron keeps, group by group, the group's queries, its key and its value.
std::vector<RowBlock> qkv_blocks(const Counts& counts, bool one_tensor) {
  const int64_t a_group = counts.n / counts.g * counts.d, d = counts.d;
  const int64_t first_k = one_tensor ? counts.n * d : 0,
                first_v = one_tensor ? (counts.n + counts.g) * d : 0;
  std::vector<RowBlock> blocks;
  for (int64_t group = 0, row = 0; group < counts.g; ++group) {
    blocks.push_back({0, row, group * a_group, a_group});
    row += a_group;
    blocks.push_back({one_tensor ? 0u : 1u, row, first_k + group * d, d});
    row += d;
    blocks.push_back({one_tensor ? 0u : 2u, row, first_v + group * d, d});
    row += d;
  }
  return blocks;
}

// Tensors of the same height, one after the other in ours.
std::vector<RowBlock> stacked_blocks(int64_t rows, int64_t tensors) {
  const int64_t height = rows / tensors;
  std::vector<RowBlock> blocks;
  for (int64_t i = 0; i < tensors; ++i) blocks.push_back({size_t(i), i * height, 0, height});
  return blocks;
}

std::vector<RowBlock> row_blocks(RowLayout layout, int64_t rows, const Counts& counts) {
  switch (layout) {
    case RowLayout::same:
      return stacked_blocks(rows, 1);
    case RowLayout::gate_up:
      return stacked_blocks(rows, 2);
    case RowLayout::qkv:
      return qkv_blocks(counts, /*one_tensor=*/false);
    case RowLayout::one_qkv:
      return qkv_blocks(counts, /*one_tensor=*/true);
    case RowLayout::experts:
      return stacked_blocks(rows, counts.e);
    case RowLayout::experts_gate_up:
      return stacked_blocks(rows, 2 * counts.e);
  }
  return {};
}

// In the order of the blocks' numbers: an expert's tensors together.
std::vector<std::string> names_of(const TensorRow& row, const Counts& counts) {
  const bool by_expert = row.rows == RowLayout::experts || row.rows == RowLayout::experts_gate_up;
  if (!by_expert) return expand_names(row.hf);
  std::vector<std::string> names;
  for (int64_t e = 0; e < counts.e; ++e)
    for (std::string& name : expand_names(expert_name(row.hf, e))) names.push_back(std::move(name));
  return names;
}

TensorPair pair_of(const TensorRow& row, const std::string& hf_prefix, const std::string& name,
                   const std::vector<int64_t>& shape, const Counts& counts) {
  TensorPair pair{.ours = name, .our_shape = shape, .hf = {}, .blocks = {}};
  pair.own_type = row.own_type;
  pair.transposed = row.transposed && shape.size() == 2;
  pair.blocks = row_blocks(row.rows, shape.at(0), counts);
  const std::vector<std::string> names = names_of(row, counts);
  std::vector<int64_t> rows(names.size());
  for (const RowBlock& block : pair.blocks) rows.at(block.hf) += block.count;
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<int64_t> stored = shape;
    stored[0] = rows[i];
    if (pair.transposed) std::swap(stored[0], stored[1]);
    pair.hf.push_back({hf_prefix + names[i], std::move(stored)});
  }
  return pair;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<int64_t>>> model_tensors(
    const TransformerConfig& config) {
  const std::unique_ptr<Model> model = default_model()(config);
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;
  const auto add = [&](const std::string& name, const Parameter& parameter) {
    const auto dims = parameter.spec().global_shape.dims();
    tensors.emplace_back(name, std::vector<int64_t>(dims.begin(), dims.end()));
  };
  model->for_each_parameter(add);
  // Of what routers keep from step to step, biases are part of the function. Loads are training's.
  model->for_each_buffer([&](const std::string& name, const Parameter& buffer) {
    if (name.ends_with(".router.expert_bias")) add(name, buffer);
  });
  return tensors;
}

std::vector<TensorPair> tensor_pairs(const Family& family, const TransformerConfig& config) {
  const Counts counts(config);
  std::vector<TensorPair> pairs;
  for (const auto& [name, shape] : model_tensors(config)) {
    const std::optional<LayerName> in_layer = layer_name(name, config.num_layers);
    const TensorRow* row = !in_layer         ? find_row(family.tensors, name)
                           : in_layer->ahead ? find_row(family.ahead_tensors, in_layer->rest)
                                             : find_row(family.layer_tensors, in_layer->rest);
    PHX_CHECK(row != nullptr, "a ", family.name, " model of Hugging Face has no place for ", name);
    pairs.push_back(
        pair_of(*row, in_layer ? family.layers + in_layer->layer + "." : "", name, shape, counts));
  }
  return pairs;
}

}  // namespace phx
