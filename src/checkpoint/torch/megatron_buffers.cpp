#include "phalanx/checkpoint/torch/megatron_buffers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/megatron_names.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// Their defaults, in elements.
constexpr int64_t kLeastBucket = 40'000'000, kBucketPerRank = 1'000'000;

std::optional<int64_t> integer_at(const Json& args, const char* key) {
  const auto found = args.find(key);
  if (found == args.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

bool flag_at(const Json& args, const char* key) {
  const auto found = args.find(key);
  return found != args.end() && found->is_boolean() && found->get<bool>();
}

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The buckets of one buffer. Megatron pads the end of a bucket to a multiple of 128 at least, so
// that each begins aligned: here every one begins at 0.
class BucketMaker {
 public:
  BucketMaker(MegatronBuffer& buffer, const BufferRules& rules) : buffer_(buffer), rules_(rules) {}

  void add(size_t index, const BufferParameter& parameter) {
    int64_t begin = rounded_up(end_, rules_.alignment);
    if (parameter.shared_embedding && !bucket_.places.empty()) {
      finish(begin);  // with the padding before the parameter that is not there any more
      begin = 0;
    }
    bucket_.places.push_back({index, begin});
    end_ = begin + parameter.numel;
    if (parameter.shared_embedding || (rules_.bucket_size && end_ >= *rules_.bucket_size))
      finish(end_);
  }

  void finish(int64_t numel) {
    if (bucket_.places.empty()) return;
    bucket_.numel = numel;
    buffer_.buckets.push_back(std::move(bucket_));
    bucket_ = {};
    end_ = 0;
  }

  void finish() { finish(end_); }

 private:
  MegatronBuffer& buffer_;
  const BufferRules& rules_;
  BufferBucket bucket_;
  int64_t end_ = 0;  // of the last parameter
};

// The parameters of a layer in the order of its modules; the two norms at both of their places.
constexpr auto kLayerOrder = std::to_array<std::string_view>({
    "input_layernorm.weight",
    "input_layernorm.bias",
    "self_attention.core_attention.softmax_offset",
    "self_attention.linear_proj.weight",
    "self_attention.linear_proj.bias",
    "self_attention.linear_qkv.layer_norm_weight",
    "self_attention.linear_qkv.layer_norm_bias",
    "self_attention.linear_qkv.weight",
    "self_attention.linear_qkv.bias",
    "self_attention.q_layernorm.weight",
    "self_attention.q_layernorm.bias",
    "self_attention.k_layernorm.weight",
    "self_attention.k_layernorm.bias",
    "pre_mlp_layernorm.weight",
    "pre_mlp_layernorm.bias",
    "mlp.linear_fc1.layer_norm_weight",
    "mlp.linear_fc1.layer_norm_bias",
    "mlp.linear_fc1.weight",
    "mlp.linear_fc1.bias",
    "mlp.linear_fc2.weight",
    "mlp.linear_fc2.bias",
    "mlp.router.weight",
    "mlp.experts.",  // kExpertOrder
    "mlp.shared_experts.gate_weight",
    "mlp.shared_experts.linear_fc1.weight",
    "mlp.shared_experts.linear_fc2.weight",
});
// Of one expert.
constexpr std::string_view kExperts = "mlp.experts.";
constexpr auto kExpertOrder = std::to_array<std::string_view>({
    "linear_fc1.weight",
    "linear_fc2.weight",
});

constexpr auto kBeforeLayers = std::to_array<std::string_view>({
    "embedding.word_embeddings.weight",
    "embedding.position_embeddings.weight",
});
constexpr auto kBehindLayers = std::to_array<std::string_view>({
    "decoder.final_layernorm.weight",
    "decoder.final_layernorm.bias",
});
// Of a layer of multi-token prediction, around its transformer layer.
constexpr auto kBeforeLayerAhead = std::to_array<std::string_view>({
    "enorm.weight",
    "enorm.bias",
    "hnorm.weight",
    "hnorm.bias",
    "eh_proj.weight",
});
constexpr auto kBehindLayerAhead = std::to_array<std::string_view>({
    "final_layernorm.weight",
    "final_layernorm.bias",
});

template <class List>
std::optional<int64_t> place_in(const List& list, std::string_view name) {
  const auto found = std::ranges::find(list, name);
  return found == list.end() ? std::nullopt : std::optional<int64_t>(found - list.begin());
}

// Before, in or behind the layers; the layer; the place there; the place among its experts.
using Place = std::tuple<int, int64_t, int64_t, std::pair<int64_t, int64_t>>;
constexpr int kAhead = 3, kOutputLayer = 4;

Place place_of(const std::string& name, const ModuleOrder& order) {
  if (const auto place = place_in(kBeforeLayers, name)) return {0, 0, *place, {}};
  if (const auto place = place_in(kBehindLayers, name)) return {2, 0, *place, {}};
  if (name == "output_layer.weight") return {kOutputLayer, 0, 0, {}};
  if (const auto ahead = layer_ahead(name)) {
    const std::string inside = name.substr(ahead->end + 1);
    constexpr auto kLayer = int64_t(kBeforeLayerAhead.size()),
                   kBehind = int64_t(kLayer + kLayerOrder.size());
    if (const auto place = place_in(kBeforeLayerAhead, inside))
      return {kAhead, ahead->layer, *place, {}};
    if (const auto place = place_in(kBehindLayerAhead, inside))
      return {kAhead, ahead->layer, kBehind + *place, {}};
    constexpr std::string_view kTransformer = "transformer_layer.";
    if (inside.starts_with(kTransformer)) {
      Place place =
          place_of(str_cat("decoder.layers.0.", inside.substr(kTransformer.size())), order);
      std::get<0>(place) = kAhead;
      std::get<1>(place) = ahead->layer;
      std::get<2>(place) += kLayer;
      return place;
    }
  }
  const auto number = layer_number(name);
  PHX_CHECK(number, printable(name), " is no parameter of a GPT model that is known here",
            "\n  hint: its optimizer state cannot be found in flat buckets: --no-load-optim");
  const std::string inside = name.substr(number->end + 1);
  if (const auto expert = expert_number(name); expert && inside.starts_with(kExperts)) {
    const auto part = place_in(
        kExpertOrder,
        inside.substr(kExperts.size(), expert->begin - (number->end + 1) - kExperts.size()));
    PHX_CHECK(part, printable(name), " is no parameter of an expert that is known here",
              "\n  hint: its optimizer state cannot be found in flat buckets: --no-load-optim");
    const int64_t experts = *place_in(kLayerOrder, kExperts);
    if (order.experts == ExpertModules::grouped)
      return {1, number->layer, experts, {*part, expert->expert}};
    return {1, number->layer, experts, {expert->expert, *part}};
  }
  const std::string own =
      order.norms == NormModules::separate ? with_separate_norms(inside) : with_fused_norms(inside);
  const auto place = place_in(kLayerOrder, own);
  PHX_CHECK(place, printable(name), " is no parameter of a layer that is known here",
            "\n  hint: its optimizer state cannot be found in flat buckets: --no-load-optim");
  return {1, number->layer, *place, {}};
}

}  // namespace

BufferRules buffer_rules(const Json& args, int64_t num_parameters, int64_t pipeline_rank,
                         int64_t chunk) {
  BufferRules rules;
  const bool whole = !flag_at(args, "overlap_grad_reduce") ||
                     flag_at(args, "overlap_param_gather_with_optimizer_step");
  if (whole || pipeline_rank > 0 || chunk > 0) return rules;
  const int64_t num_ranks = integer_at(args, "data_parallel_size").value_or(1) *
                            integer_at(args, "context_parallel_size").value_or(1);
  const auto num_buckets = integer_at(args, "ddp_num_buckets");
  if (num_buckets && *num_buckets > 0)
    rules.bucket_size = num_parameters / *num_buckets;
  else if (const auto size = integer_at(args, "ddp_bucket_size"))
    rules.bucket_size = *size;
  else
    rules.bucket_size = std::max(kLeastBucket, kBucketPerRank * num_ranks);
  return rules;
}

std::vector<MegatronBuffer> megatron_buffers(std::span<const BufferParameter> parameters,
                                             const BufferRules& rules) {
  PHX_CHECK(rules.alignment > 0, "an alignment of ", rules.alignment, " elements");
  std::vector<MegatronBuffer> buffers;
  for (const BufferParameter& parameter : parameters) {
    const bool known = std::ranges::any_of(
        buffers, [&](const MegatronBuffer& buffer) { return buffer.dtype == parameter.dtype; });
    if (!known) buffers.push_back({parameter.dtype, {}});
  }
  for (MegatronBuffer& buffer : buffers) {
    BucketMaker maker(buffer, rules);
    // Gradients come from the last layer on.
    for (size_t i = parameters.size(); i-- > 0;)
      if (parameters[i].dtype == buffer.dtype) maker.add(i, parameters[i]);
    maker.finish();
  }
  return buffers;
}

NormModules norm_modules(const Json& args) {
  const auto found = args.find("transformer_impl");
  const bool local = found != args.end() && found->is_string() && *found == "local";
  return local ? NormModules::separate : NormModules::fused;
}

ExpertModules expert_modules(const Json& args) {
  return flag_at(args, "moe_grouped_gemm") ? ExpertModules::grouped : ExpertModules::sequential;
}

void sort_as_registered(std::vector<std::string>& names, const ModuleOrder& order) {
  std::vector<std::pair<Place, std::string>> placed;
  for (std::string& name : names) {
    const auto place = place_of(name, order);
    placed.emplace_back(place, std::move(name));
  }
  std::ranges::sort(placed);
  for (size_t i = 0; i < names.size(); ++i) names[i] = std::move(placed[i].second);
}

}  // namespace phx
