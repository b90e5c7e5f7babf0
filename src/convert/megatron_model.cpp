#include "convert/megatron_model.h"

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/torch/split_masters.h"
#include "checkpoint/torch/torch_kind.h"
#include "convert/megatron_options.h"
#include "convert/renamed_source.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr const char* kOptimizer = "optimizer.";

// Tokens without padding: what the caller knows, else what the arguments say; 0: not known.
int64_t unpadded_vocabulary(int64_t given, const Json& common) {
  if (given > 0) return given;
  const Json args = common.value("args", Json::object());
  const Json size = args.is_object() ? args.value("vocab_size", Json()) : Json();
  return size.is_number_integer() ? size.get<int64_t>() : 0;
}

bool has_whole_state(const TensorSource& source) {
  const auto& tensors = source.tensors();
  for (const auto& [name, info] : tensors) {
    if (name.starts_with(kOptimizer)) continue;
    if (!tensors.contains("optimizer.exp_avg." + name) ||
        !tensors.contains("optimizer.exp_avg_sq." + name))
      return false;
    // 16-bit weights need their masters too.
    if (info.dtype == DType::bf16 && !tensors.contains("optimizer.master_remainder." + name))
      return false;
    if (info.dtype == DType::f16 && !tensors.contains("optimizer.master." + name)) return false;
  }
  return true;
}

}  // namespace

bool is_megatron_folder(const Path& folder, std::optional<int64_t> step) {
  return torch_checkpoint_kind(folder, step).kind != TorchKind::none;
}

MegatronModel::MegatronModel(const Path& folder, std::optional<int64_t> step, int64_t vocab_size) {
  path = torch_checkpoint_kind(folder, step).path;
  OpenedTorchCheckpoint opened = open_torch_checkpoint(folder, {}, step);
  kind = name(opened.kind);
  common_json = std::move(opened.common_json);
  vocab_size_ = unpadded_vocabulary(vocab_size, parse_json(common_json));
  if (vocab_size_ > 0) opened = open_torch_checkpoint(folder, {.vocab_size = vocab_size_}, step);
  notes = std::move(opened.notes);
  tensors = std::make_shared<SplitMasters>(std::move(opened.source));
  weights = std::make_shared<RenamedSource>(tensors, [](const std::string& name) {
    return name.starts_with(kOptimizer) ? std::nullopt : std::optional(name);
  });
  has_optimizer = has_whole_state(*tensors);
  if (!has_optimizer) tensors = weights;
}

Json MegatronModel::options() const {
  const Json common = parse_json(common_json);
  const auto args = common.find("args");
  PHX_CHECK(args != common.end() && args->is_object(), path.native(),
            " does not hold the arguments of its run: what model it is, is not known"
            "\n  hint: give the model's flags");
  Json options = megatron_model_options(*args, path.native());
  if (vocab_size_ > 0)
    options["vocab_size"] = vocab_size_;
  else if (options.contains("padded_vocab_size"))
    options["vocab_size"] = options["padded_vocab_size"];
  options.erase("padded_vocab_size");
  return options;
}

}  // namespace phx
