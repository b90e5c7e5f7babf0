// What Megatron calls things in its checkpoints, beside what they are called here: a parameter of
// ours has its global layer's number in its name ("decoder.layers.3.mlp.linear_fc1.weight"), and an
// expert's its own at the end ("mlp.experts.linear_fc1.weight7").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/strided_copy.h"

namespace phx {

// Tensors of ours that one key of torch_dist holds: where layers are alike, their tensors lie along
// a first axis, experts along the next. `index` are the places on those axes.
struct StackedPart {
  std::string name;
  Dims index;
};
// Of a key and its global shape. Empty: nothing of the model or of an optimizer state that can be
// loaded under another layout.
std::vector<StackedPart> parts_of_key(const std::string& key, const Dims& shape);

// The other way: which keys the tensors of a model become. Layers are stacked if that is asked for
// and all have the same tensors, as Megatron does.
struct StackedTensor {
  TensorInfo info;
  std::vector<StackedPart> parts;
};
std::map<std::string, StackedTensor> stacked(const std::map<std::string, TensorInfo>& tensors,
                                             bool stack_layers = true);

// The number after "decoder.layers.", and where it stands in the name.
struct LayerNumber {
  int64_t layer;
  size_t begin, end;
};
std::optional<LayerNumber> layer_number(std::string_view name);
// The same behind "mtp.layers.", of a layer of multi-token prediction, which are counted from 0.
std::optional<LayerNumber> layer_ahead(std::string_view name);

// The number of an expert at the end of a name, and where it begins:
// "..mlp.experts.linear_fc1.weight7". Nothing: no expert's name, or that of all of them together.
struct ExpertNumber {
  int64_t expert;
  size_t begin;
};
std::optional<ExpertNumber> expert_number(std::string_view name);
// "..mlp.experts.linear_fc1.weight", also of optimizer state: all experts of a layer.
bool holds_experts(std::string_view name);

// What a router keeps from step to step: no weight, and in no optimizer's state. Biases of experts
// have a key in Megatron's checkpoints, loads of a step have none.
bool is_buffer(std::string_view name);
bool is_load_of_experts(std::string_view name);

// The axis along which tensor-parallel ranks cut a parameter; nothing: each has all of it.
std::optional<int> tensor_parallel_axis(std::string_view name);

// The fc2 weight beside an fc1 weight or bias; empty for other names. Where fc1 has twice as many
// rows as fc2 has columns, it is [gate; up], and each half is cut for itself.
std::string fc2_of_fc1(std::string_view name);

// The norm before attention and that before the MLP, within a layer: modules of their own
// (--transformer-impl local: "input_layernorm.weight", "pre_mlp_layernorm.weight"), or part of the
// linear layer behind them (as here: "self_attention.linear_qkv.layer_norm_weight"). Other names
// come back as they are. A layer with experts has a norm of its own in both.
std::string with_fused_norms(std::string_view name_in_layer);
std::string with_separate_norms(std::string_view name_in_layer);

// Embedding and output layer, whose rows Megatron pads; also of optimizer state.
bool has_vocabulary_rows(std::string_view name);

}  // namespace phx
