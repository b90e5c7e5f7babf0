#include "phalanx/checkpoint/torch/torch_kind.h"

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/fsdp_dtensor.h"
#include "phalanx/checkpoint/torch/torch_folder.h"

namespace phx {
namespace {

TorchKind kind_of_folder(const Path& path) {
  if (TorchDistCheckpoint::is_one(path)) return TorchKind::torch_dist;
  if (TorchFolder::is_one(path)) return TorchKind::torch;
  if (FsdpCheckpoint::is_one(path)) return TorchKind::fsdp_dtensor;
  return TorchKind::none;
}

std::string iteration_folder(const std::string& digits) {
  return "iter_" + std::string(digits.size() < 7 ? 7 - digits.size() : 0, '0') + digits;
}

// The name of the newest checkpoint's folder; empty if nothing says which.
std::string tracked_folder(const Path& path) {
  const Path tracker = path / "latest_checkpointed_iteration.txt";
  if (!std::filesystem::exists(tracker)) return "";
  std::string text = read_file(tracker);
  text.erase(text.find_last_not_of(" \n\r\t") + 1);
  if (text == "release") return text;
  const bool digits = !text.empty() && text.size() < 19 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? iteration_folder(text) : "";
}

}  // namespace

const char* name(TorchKind kind) {
  switch (kind) {
    case TorchKind::torch_dist:
      return "torch_dist";
    case TorchKind::torch:
      return "torch";
    case TorchKind::fsdp_dtensor:
      return "fsdp_dtensor";
    case TorchKind::none:
      break;
  }
  return "none";
}

TorchCheckpointPlace torch_checkpoint_kind(const Path& path, std::optional<int64_t> step) {
  if (const TorchKind kind = kind_of_folder(path); kind != TorchKind::none) return {kind, path};
  const std::string name = step ? iteration_folder(std::to_string(*step)) : tracked_folder(path);
  if (name.empty()) return {};
  const Path folder = path / name;
  const TorchKind kind = kind_of_folder(folder);
  return kind == TorchKind::none ? TorchCheckpointPlace{} : TorchCheckpointPlace{kind, folder};
}

OpenedTorchCheckpoint open_torch_checkpoint(const Path& path, const TorchReadOptions& options,
                                            std::optional<int64_t> step) {
  const TorchCheckpointPlace place = torch_checkpoint_kind(path, step);
  PHX_CHECK(place.kind != TorchKind::none, path.native(),
            " holds no checkpoint of Megatron: neither .metadata (torch_dist, fsdp_dtensor) nor "
            "mp_rank_* "
            "(torch), nor a latest_checkpointed_iteration.txt that names one");
  OpenedTorchCheckpoint opened{.source = {}, .kind = place.kind, .common_json = {}};
  if (place.kind == TorchKind::torch_dist) {
    auto source = std::make_unique<TorchDistCheckpoint>(place.path, options);
    opened.common_json = source->common_json();
    for (const std::string& note : source->notes()) opened.why_no_optimizer += note;
    opened.optimizer_saved = source->optimizer_saved();
    opened.source = std::move(source);
  } else if (place.kind == TorchKind::fsdp_dtensor) {
    auto source = std::make_unique<FsdpCheckpoint>(place.path, options);
    opened.common_json = source->common_json();
    opened.why_no_optimizer = source->why_no_optimizer();
    opened.optimizer_saved = source->optimizer_saved();
    opened.source = std::move(source);
  } else {
    auto source = std::make_unique<TorchFolder>(place.path, options);
    opened.common_json = source->common_json();
    opened.why_no_optimizer = source->why_no_optimizer();
    opened.optimizer_saved = source->optimizer_saved();
    opened.source = std::move(source);
  }
  return opened;
}

}  // namespace phx
