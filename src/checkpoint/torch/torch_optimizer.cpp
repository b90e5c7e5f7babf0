#include "phalanx/checkpoint/torch/torch_optimizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/master_fit.h"
#include "phalanx/checkpoint/torch/megatron_buffers.h"
#include "phalanx/checkpoint/torch/pickle_json.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Kind = PickleValue::Kind;

constexpr const char* kMaster = "optimizer.master.";
constexpr auto kMoments = std::to_array<std::pair<const char*, const char*>>({
    {"exp_avg", "optimizer.exp_avg."},
    {"exp_avg_sq", "optimizer.exp_avg_sq."},
});
constexpr int64_t kCompared = 1024;  // elements of a weight that are held against its master

bool flag_at(const Json& args, const char* key) {
  const auto found = args.find(key);
  return found != args.end() && found->is_boolean() && found->get<bool>();
}

const PickleValue* find_number(const PickleValue& dict, int64_t key) {
  if (!dict.is(Kind::dict)) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (dict.items[i]->as_integer() == key) return dict.items[i + 1];
  return nullptr;
}

// Where groups and states lie: the mixed-precision optimizer has Adam's inside its own.
const PickleValue& inner_optimizer(const PickleValue& optimizer) {
  const PickleValue* inner = optimizer.find("optimizer");
  return inner != nullptr && inner->is(Kind::dict) ? *inner : optimizer;
}

void check_kind(const TorchRank& rank, const PickleValue* optimizer) {
  const std::string& where = rank.file.where();
  const auto kind = rank.args.find("optimizer");
  PHX_CHECK(kind == rank.args.end() || !kind->is_string() || *kind == "adam", where,
            " was trained with --optimizer ", kind->get<std::string>(),
            "; only Adam's state is read");
  PHX_CHECK(optimizer != nullptr, where,
            " holds no optimizer state: it was saved with --no-save-optim, or is a release");
  PHX_CHECK(!optimizer->is(Kind::list), where, " holds the state of ", optimizer->items.size(),
            " optimizers (experts, or --overlap-param-gather-with-optimizer-step), "
            "which is not read");
  PHX_CHECK(optimizer->is(Kind::dict), where, ": 'optimizer' is ", describe(*optimizer));
  for (const char* flag : {"use_mup", "fp8_param_gather", "fp4_param_gather"})
    PHX_CHECK(!flag_at(rank.args, flag), where, " was trained with ", flag,
              ", whose optimizer state is not read");
}

// A weight is its master rounded. Where that is not so, the two do not belong together.
void check_master(const std::string& where, const std::string& name, const TorchTensor& weight,
                  const TorchTensor& master) {
  Box box = whole_box(weight.info.shape);
  int64_t left = kCompared;
  for (size_t i = box.size.size(); i-- > 0; left /= std::max<int64_t>(1, box.size[i]))
    box.size[i] = std::min(box.size[i], std::max<int64_t>(1, left));
  const Dims strides = dense_strides(box.size);
  const auto copy = [&](const TorchTensor& tensor, std::byte* to) {
    TorchTensor unchecked = tensor;  // opening a folder should not read all of it
    unchecked.entry = nullptr;
    unchecked.copy(box, {to, strides});
  };
  const auto count = static_cast<size_t>(box.numel());
  std::vector<std::byte> weights(count * static_cast<size_t>(size_of(weight.info.dtype)));
  std::vector<float> masters(count);
  copy(weight, weights.data());
  copy(master, reinterpret_cast<std::byte*>(masters.data()));
  const auto misfit = master_misfit(weight.info.dtype, weights, masters);
  PHX_CHECK(!misfit, where, ": the fp32 copy of ", name, " has ", misfit->master,
            " where the weight is ", misfit->weight,
            ": the weights were changed after this state was saved, or the state is laid out in a "
            "way that is not known here");
}

TorchTensor state_tensor(const std::string& where, const std::string& name, const char* what,
                         TorchTensor tensor, const Dims& shape) {
  PHX_CHECK(tensor.info.dtype == DType::f32 && tensor.info.shape == shape, where, ": ", what,
            " of ", name, " should be F32 ", text_of(shape), ", but is ", describe(tensor.info));
  return tensor;
}

// ---- with the distributed optimizer ----

// The flat tensors of one buffer: "param", "exp_avg", "exp_avg_sq".
std::map<std::string, TorchTensor> flat_tensors(const TorchArchive& file, int64_t index,
                                                int64_t numel) {
  const PickleValue* types = find_number(file.root(), index);
  PHX_CHECK(types != nullptr && types->is(Kind::dict) && types->items.size() == 2, file.where(),
            " should hold buffer ", index, " of the model's parameters, of one type");
  const PickleValue& buffer = *types->items[1];
  std::map<std::string, TorchTensor> tensors;
  for (const char* key : {"param", "exp_avg", "exp_avg_sq"}) {
    const PickleValue* value = buffer.find(key);
    PHX_CHECK(value != nullptr, file.where(), ": buffer ", index, " has no '", key,
              "': this is not Adam state");
    TorchTensor tensor = file.tensor(*value, key);
    PHX_CHECK(tensor.info.dtype == DType::f32 && tensor.info.shape == Dims{numel} &&
                  (numel == 0 || tensor.strides == Dims{1}),
              file.where(), ": '", key, "' of buffer ", index, " should be F32 [", numel,
              "] for the model's parameters, but is ", describe(tensor.info));
    tensors.emplace(key, std::move(tensor));
  }
  return tensors;
}

// A parameter's part of a flat tensor.
TorchTensor part_of(const TorchTensor& flat, int64_t begin, const Dims& shape) {
  const int64_t numel = *num_elements(shape);
  constexpr auto kSize = static_cast<int64_t>(sizeof(float));
  return {
      {DType::f32, shape},
      dense_strides(shape),
      flat.bytes.subspan(static_cast<size_t>(begin * kSize), static_cast<size_t>(numel * kSize)),
      flat.entry};
}

int64_t length_of(const MegatronBuffer& buffer) {
  int64_t length = 0;
  for (const BufferBucket& bucket : buffer.buckets) length += bucket.numel;
  return length;
}

std::vector<BufferParameter> buffer_parameters(const TorchRank& rank, const TorchChunk& chunk,
                                               size_t index) {
  const bool tied = !flag_at(rank.args, "untie_embeddings_and_output_weights");
  const bool first = rank.stage == 0 && index == 0;
  const bool last = rank.stage == rank.num_stages - 1 && index + 1 == rank.chunks.size();
  std::vector<BufferParameter> parameters;
  for (const std::string& name : chunk.parameters) {
    const TorchTensor& tensor = chunk.tensors.at(name);
    const TensorInfo& info = tensor.info;
    const int64_t numel = *num_elements(info.shape);
    // So that no sum of them is larger than the file.
    PHX_CHECK(static_cast<int64_t>(tensor.bytes.size()) / size_of(info.dtype) == numel,
              rank.file.where(), ": ", printable(name), " does not lie in one piece");
    const bool shared = tied && rank.num_stages > 1 &&
                        ((first && name == "embedding.word_embeddings.weight") ||
                         (last && name == "output_layer.weight"));
    parameters.push_back({name, numel, info.dtype, shared});
  }
  return parameters;
}

std::vector<TorchStates> flat_states(const TorchRank& rank, int64_t alignment) {
  const TorchArchive& file = *rank.distributed;
  int64_t num_parameters = 0, index = 0;
  std::vector<std::vector<BufferParameter>> parameters;
  for (size_t i = 0; i < rank.chunks.size(); ++i) {
    parameters.push_back(buffer_parameters(rank, rank.chunks[i], i));
    for (const BufferParameter& parameter : parameters[i]) num_parameters += parameter.numel;
  }
  std::vector<TorchStates> result;
  for (size_t i = 0; i < rank.chunks.size(); ++i) {
    const TorchChunk& chunk = rank.chunks[i];
    BufferRules rules =
        buffer_rules(rank.args, num_parameters, rank.stage, static_cast<int64_t>(i));
    rules.alignment = alignment;
    TorchStates& states = result.emplace_back();
    for (const MegatronBuffer& buffer : megatron_buffers(parameters[i], rules)) {
      const auto flat = flat_tensors(file, index++, length_of(buffer));
      int64_t begin = 0;  // of the bucket: they follow each other without padding
      for (const BufferBucket& bucket : buffer.buckets) {
        for (const BufferPlace& place : bucket.places) {
          const std::string& name = chunk.parameters[place.parameter];
          const TorchTensor& weight = chunk.tensors.at(name);
          const auto part = [&](const char* key) {
            return part_of(flat.at(key), begin + place.begin, weight.info.shape);
          };
          check_master(file.where(), name, weight, part("param"));
          if (buffer.dtype != DType::f32) states[kMaster][name] = part("param");
          for (const auto& [key, prefix] : kMoments) states[prefix][name] = part(key);
        }
        begin += bucket.numel;
      }
    }
  }
  PHX_CHECK(find_number(file.root(), index) == nullptr, file.where(), " holds more than the ",
            index, " buffers of the model's parameters");
  return result;
}

std::vector<TorchStates> distributed_states(const TorchRank& rank) {
  PHX_CHECK(rank.distributed != nullptr, rank.file.where(),
            " was saved with --use-distributed-optimizer, but there is no distrib_optim.pt beside "
            "it");
  const TorchArchive& file = *rank.distributed;
  PHX_CHECK(file.root().is(Kind::dict), file.where(), " is ", describe(file.root()),
            " instead of one optimizer's state");
  PHX_CHECK(file.root().find("buckets_coalesced") != nullptr, file.where(),
            " is of the form before February 2024, which is not read\n"
            "  hint: Megatron's --ckpt-convert-update-legacy-dist-opt-format brings it up to date");
  // Versions before the middle of 2024 did not align parameters; what does not fit is an error.
  try {
    return flat_states(rank, BufferRules().alignment);
  } catch (const Error&) {
    try {
      return flat_states(rank, 1);
    } catch (const Error&) {
    }
    throw;
  }
}

// ---- without it ----

bool is_decoupled(const std::string& name) {
  return name == "embedding.word_embeddings.weight" || name == "output_layer.weight";
}

// What tells Megatron's parameter groups apart.
struct GroupKey {
  bool decays, decoupled;
  bool operator==(const GroupKey&) const = default;
};

GroupKey key_of(const Json& args, const std::string& name, const Dims& shape) {
  const bool qk_norm =
      name.find("q_layernorm.") != name.npos || name.find("k_layernorm.") != name.npos;
  const bool vector = shape.size() == 1 || name.ends_with(".bias");
  const auto lr = args.find("decoupled_lr");
  return {.decays = !vector || (qk_norm && flag_at(args, "apply_wd_to_qk_layernorm")),
          .decoupled = lr != args.end() && lr->is_number() && is_decoupled(name)};
}

GroupKey key_of_group(const TorchRank& rank, const PickleValue& group) {
  const auto value = [&](const char* key) {
    const PickleValue* found = group.find(key);
    if (found == nullptr) found = group.find(str_cat("pre_", key));
    return found == nullptr ? std::nullopt : rank.file.number(*found);
  };
  const auto decay = value("wd_mult");
  PHX_CHECK(decay && (*decay == 0 || *decay == 1), rank.file.where(),
            ": a group of parameters without a wd_mult of 0 or 1: which parameters it holds is not "
            "known");
  const auto lr = rank.args.find("decoupled_lr");
  if (lr == rank.args.end() || !lr->is_number()) return {*decay == 1, false};
  const PickleValue* flag = group.find("is_decoupled_lr");
  const auto own = rank.args.find("lr");
  PHX_CHECK(own == rank.args.end() || *own != *lr, rank.file.where(),
            " was trained with --decoupled-lr equal to --lr: its groups cannot be told apart");
  const bool flagged = flag != nullptr && flag->is(Kind::boolean) && flag->integer == 1;
  return {*decay == 1, flagged || value("max_lr") == lr->get<double>()};
}

struct Member {
  size_t chunk;
  const std::string* name;
  const TorchTensor* weight;
};

std::vector<Member> members_of(const TorchRank& rank, const GroupKey& key) {
  std::vector<Member> members;
  for (size_t i = 0; i < rank.chunks.size(); ++i) {
    for (const std::string& name : rank.chunks[i].parameters) {
      const TorchTensor& weight = rank.chunks[i].tensors.at(name);
      if (key_of(rank.args, name, weight.info.shape) == key) members.push_back({i, &name, &weight});
    }
  }
  return members;
}

class GroupedStates {
 public:
  GroupedStates(const TorchRank& rank, const PickleValue& optimizer)
      : rank_(rank), where_(rank.file.where()), result_(rank.chunks.size()) {
    const PickleValue& inner = inner_optimizer(optimizer);
    const PickleValue *groups = inner.find("param_groups"), *states = inner.find("state");
    PHX_CHECK(
        groups != nullptr && groups->is_sequence() && states != nullptr && states->is(Kind::dict),
        where_, ": 'optimizer' has no lists of groups and states");
    PHX_CHECK(!states->items.empty(), where_,
              " holds an optimizer that has not made a step: it has no state yet");
    for (size_t i = 0; i + 1 < states->items.size(); i += 2)
      if (const auto number = states->items[i]->as_integer())
        states_[*number] = states->items[i + 1];
    masters_ = optimizer.find("fp32_from_fp16_params");
    if (masters_ == nullptr) masters_ = optimizer.find("fp32_from_fp16");
    for (size_t i = 0; i < groups->items.size(); ++i) add_group(*groups->items[i], i);
    check_all();
  }

  std::vector<TorchStates> result() && { return std::move(result_); }

 private:
  void add_group(const PickleValue& group, size_t index) {
    const PickleValue* numbers = group.find("params");
    PHX_CHECK(numbers != nullptr && numbers->is_sequence(), where_, ": a group without parameters");
    if (numbers->items.empty()) return;  // of another pipeline stage
    const auto members = members_of(rank_, key_of_group(rank_, group));
    PHX_CHECK(members.size() == numbers->items.size(), where_, ": group ", index,
              " of the optimizer has ", numbers->items.size(), " parameters, but the model has ",
              members.size(), " of that kind: which are which is not known");
    size_t master = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto number = numbers->items[i]->as_integer();
      const auto state = number ? states_.find(*number) : states_.end();
      PHX_CHECK(state != states_.end(), where_, ": the optimizer has no state of ",
                *members[i].name);
      add(members[i], *state->second);
      if (members[i].weight->info.dtype != DType::f32) add_master(members[i], index, master++);
    }
  }

  void add(const Member& member, const PickleValue& state) {
    for (const auto& [key, prefix] : kMoments) {
      const PickleValue* value = state.find(key);
      PHX_CHECK(value != nullptr, where_, ": the state of ", *member.name, " has no '", key, "'");
      PHX_CHECK(result_[member.chunk][prefix]
                    .emplace(*member.name,
                             state_tensor(where_, *member.name, key, rank_.file.tensor(*value, key),
                                          member.weight->info.shape))
                    .second,
                where_, ": ", *member.name, " is in two groups of the optimizer");
    }
  }

  void add_master(const Member& member, size_t group, size_t place) {
    const bool there = masters_ != nullptr && masters_->is_sequence() &&
                       group < masters_->items.size() && masters_->items[group]->is_sequence() &&
                       place < masters_->items[group]->items.size();
    PHX_CHECK(there, where_, ": there is no fp32 copy of ", *member.name,
              " in 'fp32_from_fp16_params'");
    const PickleValue& value = *masters_->items[group]->items[place];
    TorchTensor master =
        state_tensor(where_, *member.name, "the fp32 copy", rank_.file.tensor(value, *member.name),
                     member.weight->info.shape);
    check_master(where_, *member.name, *member.weight, master);
    result_[member.chunk][kMaster].emplace(*member.name, std::move(master));
  }

  void check_all() const {
    for (size_t i = 0; i < rank_.chunks.size(); ++i)
      for (const std::string& name : rank_.chunks[i].parameters)
        PHX_CHECK(result_[i].contains(kMoments[0].second) &&
                      result_[i].at(kMoments[0].second).contains(name),
                  where_, ": no group of the optimizer has ", name);
  }

  const TorchRank& rank_;
  const std::string& where_;
  std::map<int64_t, const PickleValue*> states_;
  const PickleValue* masters_ = nullptr;  // a list for every group
  std::vector<TorchStates> result_;
};

// Adam's count of steps: of a group, or (PyTorch's own Adam) of a parameter.
std::optional<double> step_of(const TorchArchive& file, const PickleValue& inner) {
  const PickleValue* groups = inner.find("param_groups");
  if (groups != nullptr && groups->is_sequence())
    for (const PickleValue* group : groups->items)
      if (const PickleValue* step = group->find("step")) return file.number(*step);
  const PickleValue* states = inner.find("state");
  if (states == nullptr || !states->is(Kind::dict)) return std::nullopt;
  for (size_t i = 1; i < states->items.size(); i += 2)
    if (const PickleValue* step = states->items[i]->find("step")) return file.number(*step);
  return std::nullopt;
}

}  // namespace

std::vector<TorchStates> torch_optimizer_states(const TorchRank& rank) {
  const PickleValue* optimizer = rank.file.root().find("optimizer");
  check_kind(rank, optimizer);
  if (flag_at(rank.args, "use_distributed_optimizer") || rank.distributed != nullptr)
    return distributed_states(rank);
  return GroupedStates(rank, *optimizer).result();
}

std::string torch_optimizer_json(const TorchArchive& file) {
  Json json = Json::object();
  const PickleValue* optimizer = file.root().find("optimizer");
  if (optimizer == nullptr || !optimizer->is(Kind::dict)) return json_text(json);
  if (const auto step = step_of(file, inner_optimizer(*optimizer)))
    json["param_groups"] = Json::array({{{"step", static_cast<int64_t>(*step)}}});
  if (const PickleValue* scaler = optimizer->find("grad_scaler"))
    json["grad_scaler"] = parse_json(pickle_json(*scaler, file));
  return json_text(json);
}

}  // namespace phx
