#include "phalanx/convert/tensor_map.h"

#include <charconv>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/models/model_family.h"

namespace phx {
namespace {

constexpr std::string_view kLayers = "decoder.layers.";

struct LayerName {
  std::string layer;  // "7"
  std::string rest;   // "mlp.linear_fc1.weight"
};

std::optional<LayerName> layer_name(const std::string& name) {
  if (!name.starts_with(kLayers)) return std::nullopt;
  const size_t dot = name.find('.', kLayers.size());
  if (dot == std::string::npos) return std::nullopt;
  return LayerName{name.substr(kLayers.size(), dot - kLayers.size()), name.substr(dot + 1)};
}

const TensorRow* find_row(const std::vector<TensorRow>& rows, const std::string& ours) {
  for (const TensorRow& row : rows)
    if (ours == row.ours) return &row;
  return nullptr;
}

struct Heads {
  explicit Heads(const TransformerConfig& config)
      : n(config.num_attention_heads), g(config.query_groups()), d(config.head_dim()) {}
  int64_t n, g, d;
};

// Megatron keeps, group by group, the group's queries, its key and its value.
std::vector<RowBlock> qkv_blocks(const Heads& heads, bool one_tensor) {
  const int64_t a_group = heads.n / heads.g * heads.d, d = heads.d;
  const int64_t first_k = one_tensor ? heads.n * d : 0,
                first_v = one_tensor ? (heads.n + heads.g) * d : 0;
  std::vector<RowBlock> blocks;
  for (int64_t group = 0, row = 0; group < heads.g; ++group) {
    blocks.push_back({0, row, group * a_group, a_group});
    row += a_group;
    blocks.push_back({one_tensor ? 0u : 1u, row, first_k + group * d, d});
    row += d;
    blocks.push_back({one_tensor ? 0u : 2u, row, first_v + group * d, d});
    row += d;
  }
  return blocks;
}

std::vector<RowBlock> row_blocks(RowLayout layout, int64_t rows, const Heads& heads) {
  switch (layout) {
    case RowLayout::same:
      return {{0, 0, 0, rows}};
    case RowLayout::gate_up:
      return {{0, 0, 0, rows / 2}, {1, rows / 2, 0, rows / 2}};
    case RowLayout::qkv:
      return qkv_blocks(heads, /*one_tensor=*/false);
    case RowLayout::one_qkv:
      return qkv_blocks(heads, /*one_tensor=*/true);
  }
  return {};
}

TensorPair pair_of(const TensorRow& row, const std::string& hf_prefix, const std::string& name,
                   const std::vector<int64_t>& shape, const Heads& heads) {
  TensorPair pair{.ours = name, .our_shape = shape, .hf = {}, .blocks = {}, .transposed = false};
  pair.transposed = row.transposed && shape.size() == 2;
  pair.blocks = row_blocks(row.rows, shape.at(0), heads);
  const std::vector<std::string> names = expand_names(row.hf);
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
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const auto dims = parameter.spec().global_shape.dims();
    tensors.emplace_back(name, std::vector<int64_t>(dims.begin(), dims.end()));
  });
  return tensors;
}

std::vector<TensorPair> tensor_pairs(const Family& family, const TransformerConfig& config) {
  const Heads heads(config);
  std::vector<TensorPair> pairs;
  for (const auto& [name, shape] : model_tensors(config)) {
    const std::optional<LayerName> in_layer = layer_name(name);
    const TensorRow* row =
        in_layer ? find_row(family.layer_tensors, in_layer->rest) : find_row(family.tensors, name);
    PHX_CHECK(row != nullptr, "a ", family.name, " model of Hugging Face has no place for ", name);
    pairs.push_back(
        pair_of(*row, in_layer ? family.layers + in_layer->layer + "." : "", name, shape, heads));
  }
  return pairs;
}

}  // namespace phx
