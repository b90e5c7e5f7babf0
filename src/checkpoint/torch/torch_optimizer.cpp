#include "phalanx/checkpoint/torch/torch_optimizer.h"

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/torch_states.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Kind = PickleValue::Kind;

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
  return grouped_states(rank, *optimizer);
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
