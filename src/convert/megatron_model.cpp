#include "phalanx/convert/megatron_model.h"

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/expert_sources.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/split_masters.h"
#include "phalanx/checkpoint/torch/torch_kind.h"
#include "phalanx/convert/megatron_options.h"
#include "phalanx/convert/renamed_source.h"

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

// What a run would miss; empty if the state is whole.
std::string missing_state(const TensorSource& source) {
  const auto& tensors = source.tensors();
  for (const auto& [name, info] : tensors) {
    if (name.starts_with(kOptimizer) || is_buffer(name)) continue;
    std::vector<std::string> needed = {"optimizer.exp_avg.", "optimizer.exp_avg_sq."};
    // 16-bit weights need their masters too.
    if (info.dtype == DType::bf16) needed.emplace_back("optimizer.master_remainder.");
    if (info.dtype == DType::f16) needed.emplace_back("optimizer.master.");
    for (const std::string& prefix : needed)
      if (!tensors.contains(prefix + name)) return prefix + name;
  }
  return "";
}

}  // namespace

bool is_megatron_folder(const Path& folder, std::optional<int64_t> step) {
  return torch_checkpoint_kind(folder, step).kind != TorchKind::none;
}

MegatronModel::MegatronModel(const Path& folder, std::optional<int64_t> step, int64_t vocab_size,
                             MegatronParts parts) {
  path = torch_checkpoint_kind(folder, step).path;
  release = path.filename() == "release";
  OpenedTorchCheckpoint opened = open_torch_checkpoint(folder, {.optimizer = false}, step);
  kind = name(opened.kind);
  common_json = opened.common_json;
  vocab_size_ = unpadded_vocabulary(vocab_size, parse_json(common_json));
  const bool optimizer = parts == MegatronParts::weights_and_optimizer && !release;
  if (vocab_size_ > 0 || optimizer)
    opened =
        open_torch_checkpoint(folder, {.vocab_size = vocab_size_, .optimizer = optimizer}, step);
  optimizer_saved = opened.optimizer_saved;
  const auto source = std::make_shared<JoinedExperts>(std::move(opened.source));
  weights = std::make_shared<RenamedSource>(source, [](const std::string& name) {
    return name.starts_with(kOptimizer) ? std::nullopt : std::optional(name);
  });
  tensors = weights;
  if (!optimizer) return;
  const auto split = std::make_shared<SplitMasters>(source);
  const std::string missing = missing_state(*split);
  has_optimizer = missing.empty();
  if (has_optimizer)
    tensors = split;
  else if (!opened.why_no_optimizer.empty())
    why_no_optimizer = opened.why_no_optimizer;
  else
    why_no_optimizer = str_cat(
        path.native(),
        optimizer_saved ? ": optimizer state is incomplete: " : " holds no optimizer state: ",
        missing, " is missing");
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
