// Adam's state without the distributed optimizer: which state belongs to which parameter follows
// from the groups that Megatron makes.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/torch_states.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Kind = PickleValue::Kind;

TorchTensor state_tensor(const std::string& where, const std::string& name, const char* what,
                         TorchTensor tensor, const Dims& shape) {
  PHX_CHECK(tensor.info.dtype == DType::f32 && tensor.info.shape == shape, where, ": ", what,
            " of ", name, " should be F32 ", text_of(shape), ", but is ", describe(tensor.info));
  return tensor;
}

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

}  // namespace

std::vector<TorchStates> grouped_states(const TorchRank& rank, const PickleValue& optimizer) {
  return GroupedStates(rank, optimizer).result();
}

}  // namespace phx
