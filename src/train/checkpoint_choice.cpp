#include "phalanx/train/checkpoint_choice.h"

#include <functional>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/torch/torch_kind.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/convert/megatron_model.h"

namespace phx {
namespace {

// Rank 0's number on all ranks: they decide alike, whatever each of them sees of a file system.
int64_t agreed(const Session& session, int64_t number) {
  if (session.mesh.world() == nullptr) return number;
  const Device device = session.store.weights().device();
  const Tensor value = from_ints(std::span(&number, 1), {1}, DType::i64, device);
  session.mesh.world()->broadcast(value, 0, device.runtime().stream(StreamName::compute));
  copy_to_host(value, &number);
  return number;
}

std::optional<int64_t> newest_valid(const Path& folder) {
  std::vector<std::string> why_not;
  const std::optional<int64_t> iteration = newest_valid_checkpoint(folder, why_not);
  for (const std::string& why : why_not) log_warning(str_cat("--load-newest-valid: ", why));
  PHX_CHECK(iteration || why_not.empty(), "--load-newest-valid: none of the ", why_not.size(),
            " checkpoints in ", folder.string(), " is whole");
  if (iteration && !why_not.empty())
    log_warning(str_cat("--load-newest-valid: falling back to ",
                        checkpoint_path(folder, *iteration).string()));
  return iteration;
}

std::optional<int64_t> newest(const char* flag, const Path& folder) {
  const std::optional<CheckpointToLoad> found = checkpoint_to_load(folder);
  if (!found) return std::nullopt;
  if (!found->warning.empty()) log_warning(str_cat(flag, ": ", found->warning));
  return found->iteration;
}

// The iteration that a folder of Megatron's checkpoints stands for.
std::optional<int64_t> megatron_step(const Path& folder, std::optional<int64_t> asked) {
  const Path path = torch_checkpoint_kind(folder, asked).path;
  const std::string name = path.filename().string();
  if (path == folder || !name.starts_with("iter_")) return std::nullopt;
  return std::stoll(name.substr(name.find('_') + 1));
}

}  // namespace

std::optional<CheckpointChoice> choose_checkpoint(const Session& session) {
  const TrainConfig& train = session.config.train;
  constexpr int64_t kNone = -1;
  const auto look = [&](const std::function<std::optional<int64_t>()>& looks) {
    const int64_t own = session.mesh.rank() == 0 ? looks().value_or(kNone) : kNone;
    const int64_t iteration = agreed(session, own);
    return iteration == kNone ? std::nullopt : std::optional(iteration);
  };
  const auto is_hf = [&](const std::string& folder) {
    return !folder.empty() &&
           agreed(session, session.mesh.rank() == 0 && is_hf_folder(folder) ? 1 : 0) != 0;
  };
  if (is_hf(train.load)) return CheckpointChoice{train.load, 0, /*finetune=*/true, /*hf=*/true};
  const auto megatron = [&](const std::string& folder, std::optional<int64_t> step,
                            bool finetune) -> std::optional<CheckpointChoice> {
    const bool own =
        session.mesh.rank() == 0 && !folder.empty() && is_megatron_folder(folder, step);
    if (agreed(session, own ? 1 : 0) == 0) return std::nullopt;
    return CheckpointChoice{folder,
                            /*iteration=*/0,
                            finetune,
                            /*hf=*/false,
                            /*megatron=*/true,
                            look([&] { return megatron_step(folder, step); })};
  };
  if (const auto found = megatron(train.load, train.ckpt_step, train.finetune)) return found;
  if (!train.load.empty()) {
    const std::optional<int64_t> iteration = look([&]() -> std::optional<int64_t> {
      if (train.ckpt_step) return train.ckpt_step;
      return train.load_newest_valid ? newest_valid(train.load) : newest("--load", train.load);
    });
    if (iteration) return CheckpointChoice{train.load, *iteration, train.finetune};
  }
  if (is_hf(train.pretrained_checkpoint))
    return CheckpointChoice{train.pretrained_checkpoint, 0, /*finetune=*/true, /*hf=*/true};
  if (const auto found = megatron(train.pretrained_checkpoint, {}, /*finetune=*/true)) return found;
  if (!train.pretrained_checkpoint.empty()) {
    const std::optional<int64_t> iteration =
        look([&] { return newest("--pretrained-checkpoint", train.pretrained_checkpoint); });
    PHX_CHECK(iteration, "--pretrained-checkpoint ", train.pretrained_checkpoint,
              " holds no checkpoint");
    return CheckpointChoice{train.pretrained_checkpoint, *iteration, /*finetune=*/true};
  }
  PHX_CHECK(train.load.empty() || !train.exit_on_missing_checkpoint, "--load ", train.load,
            " holds no checkpoint, and --exit-on-missing-checkpoint was given");
  return std::nullopt;
}

}  // namespace phx
