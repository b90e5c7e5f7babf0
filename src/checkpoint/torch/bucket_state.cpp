#include "phalanx/checkpoint/torch/bucket_state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/parallel/pipeline/placement.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Infos = std::map<std::string, TensorInfo>;

constexpr std::string_view kPrefix = "optimizer.distributed.";
constexpr std::string_view kDensePrefix = "optimizer.chained_0.distributed.";
constexpr std::string_view kExpertPrefix = "optimizer.chained_1.distributed.";
constexpr const char* kEmbedding = "embedding.word_embeddings.weight";
constexpr const char* kOutput = "output_layer.weight";

constexpr auto kStates = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"param", "optimizer.master."},
    {"exp_avg", "optimizer.exp_avg."},
    {"exp_avg_sq", "optimizer.exp_avg_sq."},
});

bool is_bucket(std::string_view key) {
  return key.starts_with(kPrefix) || key.starts_with(kDensePrefix) ||
         key.starts_with(kExpertPrefix);
}

// How the run cut its model.
struct ModelCut {
  int64_t tp = 1;
  // Of experts, if they are apart from the other parameters.
  bool experts_apart = false;
  int64_t ep = 1, etp = 1, experts = 0;
  Placement placement;
  bool tied = false;
};

std::optional<int64_t> integer_at(const Json& args, const char* key) {
  const Json value = args.value(key, Json());
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

bool flag_at(const Json& args, const char* key) {
  const Json value = args.value(key, Json());
  return value.is_boolean() && value.get<bool>();
}

ModelCut model_cut(const Json& args) {
  const auto required = [&](const char* key) {
    const auto value = integer_at(args, key);
    PHX_CHECK(value && *value >= 1 && *value <= 1'000'000, "the run's arguments do not say '", key,
              "'");
    return static_cast<int>(*value);
  };
  const auto optional = [&](const char* key) -> std::optional<int> {
    const auto value = integer_at(args, key);
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  const Json layout = args.value("pipeline_model_parallel_layout", Json());
  PHX_CHECK(layout.is_null() || layout.is_string(),
            "--pipeline-model-parallel-layout was given in a form that is not read");
  ModelCut cut;
  cut.tp = required("tensor_model_parallel_size");
  cut.placement = place_layers(
      {.num_layers = required("num_layers"),
       .stages = required("pipeline_model_parallel_size"),
       .chunks = optional("virtual_pipeline_model_parallel_size").value_or(1),
       .layers_per_chunk = {},
       .first_stage_layers = optional("decoder_first_pipeline_num_layers"),
       .last_stage_layers = optional("decoder_last_pipeline_num_layers"),
       .account_for_embedding = flag_at(args, "account_for_embedding_in_pipeline_split"),
       .account_for_loss = flag_at(args, "account_for_loss_in_pipeline_split"),
       .layout = layout.is_string() ? layout.get<std::string>() : "",
       .num_mtp_layers = optional("mtp_num_layers").value_or(0)});
  PHX_CHECK(cut.placement.stages == 1 || !cut.placement.mtp_stage(),
            "the optimizer state of a model with --mtp-num-layers on several pipeline stages is "
            "not found in flat buckets",
            "\n  hint: save it with --dist-ckpt-optim-fully-reshardable, or load without it: "
            "--no-load-optim");
  cut.tied = !flag_at(args, "untie_embeddings_and_output_weights");
  cut.experts = integer_at(args, "num_experts").value_or(0);
  if (cut.experts == 0) return cut;
  cut.ep = optional("expert_model_parallel_size").value_or(1);
  cut.etp = optional("expert_tensor_parallel_size").value_or(static_cast<int>(cut.tp));
  cut.experts_apart = cut.ep > 1;
  PHX_CHECK(cut.ep >= 1 && cut.etp >= 1 && cut.experts % cut.ep == 0, cut.experts, " experts on ",
            cut.ep, " x ", cut.etp, " ranks");
  PHX_CHECK(cut.experts_apart || cut.etp == cut.tp,
            "experts that are not cut over ranks lie among ", "parameters that are cut over ",
            cut.tp, " ranks, but are cut over ", cut.etp);
  return cut;
}

// The parameters of a part of the model, in the order of their registration. The last stage has a
// copy of the embedding, under the name of the output layer, where the two are tied. `expert_rank`:
// the experts of that rank, if they are apart; nothing: all other parameters.
std::vector<std::string> parameters_of(const ChunkPlacement& chunk, const Infos& model,
                                       const ModelCut& cut, const ModuleOrder& order,
                                       std::optional<int64_t> expert_rank) {
  std::vector<std::string> names;
  for (const auto& [name, info] : model) {
    const auto number = layer_number(name);
    const bool here = number
                          ? number->layer >= chunk.first_layer &&
                                number->layer < chunk.first_layer + chunk.num_layers
                          : (name.starts_with("embedding.") ? chunk.has_embedding : chunk.has_loss);
    const auto expert = cut.experts_apart ? expert_number(name) : std::nullopt;
    const bool wanted =
        expert ? expert_rank == expert->expert / (cut.experts / cut.ep) : !expert_rank.has_value();
    if (here && wanted) names.push_back(name);
  }
  if (cut.tied && chunk.has_loss && !chunk.has_embedding && !expert_rank)
    names.emplace_back(kOutput);
  sort_as_registered(names, order);
  return names;
}

// What tensor-parallel rank `rank` holds of a tensor, in the order in which it holds it.
std::vector<Box> boxes_of_rank(const std::string& name, const Infos& model, int64_t rank,
                               int64_t tp) {
  const Dims& shape = model.at(name).shape;
  Box box{Dims(shape.size(), 0), shape};
  const auto axis = tensor_parallel_axis(name);
  if (!axis || tp == 1) return {box};
  const auto fc2 = model.find(fc2_of_fc1(name));
  const size_t at = static_cast<size_t>(*axis);
  PHX_CHECK(at < shape.size(), name, " is ", text_of(shape));
  const bool gated =
      fc2 != model.end() && fc2->second.shape.size() == 2 && shape[0] == 2 * fc2->second.shape[1];
  const int64_t parts = gated ? 2 : 1;
  PHX_CHECK(shape[at] % (parts * tp) == 0, name, " is ", text_of(shape), ", which ", tp,
            " tensor-parallel ranks cannot have cut evenly");
  const int64_t part = shape[at] / parts, share = part / tp;
  std::vector<Box> boxes;
  for (int64_t i = 0; i < parts; ++i) {
    box.begin[at] = i * part + rank * share;
    box.size[at] = share;
    boxes.push_back(box);
  }
  return boxes;
}

// The tensors of one buffer's buckets: state -> buckets in order.
using Buckets = std::map<std::string, std::vector<const TorchDistTensor*>>;

// Keys that begin with `buffer`, "..gbuf_idx_0.": "dtype_(torch.bfloat16,
// torch.float32).bucket_idx_0.param".
Buckets buckets_of(const TorchDistMetadata& metadata, const std::string& buffer) {
  constexpr std::string_view kBucket = ").bucket_idx_";
  std::map<std::string, std::map<int64_t, const TorchDistTensor*>> found;
  for (auto at = metadata.tensors.lower_bound(buffer);
       at != metadata.tensors.end() && at->first.starts_with(buffer); ++at) {
    const std::string rest = at->first.substr(buffer.size());
    const size_t bucket = std::min(rest.find(kBucket), rest.size() - 1);
    const size_t number_at = std::min(bucket + kBucket.size(), rest.size());
    const size_t dot = rest.find('.', number_at);
    int64_t number = 0;
    const auto parsed = std::from_chars(rest.data() + number_at, rest.data() + rest.size(), number);
    PHX_CHECK(dot != rest.npos && parsed.ec == std::errc() && parsed.ptr == rest.data() + dot,
              "the key ", printable(at->first), " is not understood");
    PHX_CHECK(at->second.info.shape.size() == 1 && at->second.info.dtype == DType::f32,
              printable(at->first), " is ", name(at->second.info.dtype), " ",
              text_of(at->second.info.shape), " instead of flat fp32");
    PHX_CHECK(found[rest.substr(dot + 1)].emplace(number, &at->second).second, printable(buffer),
              " has parameters of two types");
  }
  Buckets buckets;
  for (const auto& [state, numbered] : found)
    for (const auto& [number, tensor] : numbered) buckets[state].push_back(tensor);
  return buckets;
}

using Parts = std::map<std::string, std::vector<FlatPart>>;

class BucketReader {
 public:
  BucketReader(const TorchDistMetadata& metadata, const Infos& model, const Json& args,
               const ModuleOrder& order)
      : metadata_(metadata), model_(model), args_(args), order_(order), cut_(model_cut(args)) {}

  Parts run() {
    for (int stage = 0; stage < cut_.placement.stages; ++stage) {
      for (int64_t rank = 0; rank < cut_.tp; ++rank)
        add_rank({.stage = stage,
                  .tp = cut_.tp,
                  .tp_rank = rank,
                  .key = str_cat(cut_.experts_apart ? kDensePrefix : kPrefix, "dp_group_idx_",
                                 stage * cut_.tp + rank)});
      if (!cut_.experts_apart) continue;
      for (int64_t rank = 0; rank < cut_.ep * cut_.etp; ++rank)
        add_rank(
            {.stage = stage,
             .tp = cut_.etp,
             .tp_rank = rank % cut_.etp,
             .expert_rank = rank / cut_.etp,
             .key = str_cat(kExpertPrefix, "dp_group_idx_", stage * cut_.ep * cut_.etp + rank)});
    }
    const auto all = std::ranges::count_if(metadata_.tensors,
                                           [](const auto& item) { return is_bucket(item.first); });
    PHX_CHECK(all == used_, all - used_,
              " of its tensors belong to ranks that the run's arguments do not list");
    for (const auto& [name, info] : model_)
      for (const auto& [state, prefix] : kStates)
        PHX_CHECK(parts_.contains(str_cat(prefix, name)), "no bucket holds ", name);
    return std::move(parts_);
  }

 private:
  // A rank with its parameters, or with its experts.
  struct Rank {
    int stage;
    int64_t tp, tp_rank;
    std::optional<int64_t> expert_rank = {};
    std::string key;
  };

  // Which tensor a parameter of that name is.
  std::string held(const std::string& name) const {
    return name == kOutput && cut_.tied ? kEmbedding : name;
  }

  std::vector<BufferParameter> parameters(const ChunkPlacement& chunk, const Rank& rank) const {
    std::vector<BufferParameter> result;
    const bool two_stages = chunk.has_embedding != chunk.has_loss;
    for (const std::string& name : parameters_of(chunk, model_, cut_, order_, rank.expert_rank)) {
      BufferParameter parameter{name, 0, model_.at(held(name)).dtype,
                                cut_.tied && two_stages && held(name) == kEmbedding};
      for (const Box& box : boxes_of_rank(held(name), model_, rank.tp_rank, rank.tp))
        parameter.numel += *num_elements(box.size);
      result.push_back(parameter);
    }
    return result;
  }

  // Elements of a stage's parameters on one rank, with its experts: what --ddp-num-buckets divides.
  int64_t elements_of_stage(const Rank& rank) const {
    int64_t total = 0;
    Rank other = rank;
    if (rank.expert_rank) {
      other = {.stage = rank.stage, .tp = cut_.tp, .tp_rank = 0, .key = {}};
    } else {
      other.expert_rank = 0;
      other.tp = cut_.etp, other.tp_rank = 0;
    }
    for (int chunk = 0; chunk < cut_.placement.chunks; ++chunk)
      for (const Rank& one : {rank, other}) {
        if (one.expert_rank && !cut_.experts_apart) continue;
        for (const BufferParameter& parameter :
             parameters(cut_.placement.at(rank.stage, chunk), one))
          total += parameter.numel;
      }
    return total;
  }

  void add_rank(const Rank& rank) {
    const int64_t total = elements_of_stage(rank);
    int64_t index = 0;
    for (int chunk = 0; chunk < cut_.placement.chunks; ++chunk) {
      const auto held_here = parameters(cut_.placement.at(rank.stage, chunk), rank);
      const BufferRules rules = buffer_rules(args_, total, rank.stage, chunk);
      for (const MegatronBuffer& buffer : megatron_buffers(held_here, rules))
        add_buffer(str_cat(rank.key, ".gbuf_idx_", index++, "."), buffer, held_here, rank);
    }
  }

  void add_buffer(const std::string& key, const MegatronBuffer& buffer,
                  const std::vector<BufferParameter>& parameters, const Rank& rank) {
    const Buckets buckets = buckets_of(metadata_, key);
    for (const auto& [state, prefix] : kStates) {
      const auto found = buckets.find(std::string(state));
      PHX_CHECK(found != buckets.end(), "there is no ", key, "..", state);
      PHX_CHECK(found->second.size() == buffer.buckets.size(), key, "..", state, " has ",
                found->second.size(), " buckets, but should have ", buffer.buckets.size());
      for (size_t i = 0; i < buffer.buckets.size(); ++i) {
        const TorchDistTensor& flat = *found->second[i];
        PHX_CHECK(flat.info.shape[0] == buffer.buckets[i].numel, "bucket ", i, " of ", key, "..",
                  state, " has ", flat.info.shape[0],
                  " elements, but this model's parameters make ", buffer.buckets[i].numel);
        ++used_;
        for (const BufferPlace& place : buffer.buckets[i].places)
          add_parameter(std::string(prefix), parameters[place.parameter].name, rank, flat,
                        place.begin);
      }
    }
  }

  // Copies are the first holder's: norms of rank 0, the embedding of the first stage.
  void add_parameter(const std::string& prefix, const std::string& name, const Rank& rank,
                     const TorchDistTensor& flat, int64_t begin) {
    if (held(name) != name || (rank.tp_rank > 0 && !tensor_parallel_axis(name))) return;
    for (const Box& box : boxes_of_rank(name, model_, rank.tp_rank, rank.tp)) {
      parts_[prefix + name].push_back({box, &flat, begin});
      begin += *num_elements(box.size);
    }
  }

  const TorchDistMetadata& metadata_;
  const Infos& model_;
  const Json& args_;
  ModuleOrder order_;
  ModelCut cut_;
  Parts parts_;
  int64_t used_ = 0;  // tensors that were placed
};

}  // namespace

bool has_bucket_state(const TorchDistMetadata& metadata) {
  return std::ranges::any_of(metadata.tensors,
                             [](const auto& item) { return is_bucket(item.first); });
}

Parts bucket_parts(const TorchDistMetadata& metadata, const Infos& model, const Json& args,
                   const ModuleOrder& order) {
  PHX_CHECK(args.is_object(), "the arguments of the run, which say how it was cut, are missing");
  return BucketReader(metadata, model, args, order).run();
}

}  // namespace phx
