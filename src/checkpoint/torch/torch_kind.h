// Which of PyTorch's and Megatron's forms a path has, and opening it whatever it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/torch_dist.h"

namespace phx {

// `fsdp_dtensor`: PyTorch's distributed checkpoint without Megatron's description. Where opening it
// shows that Megatron-FSDP did not write it (--ckpt-format torch_dcp), it is refused.
enum class TorchKind : uint8_t { none, torch_dist, torch, fsdp_dtensor };
const char* name(TorchKind kind);

// A checkpoint of Megatron's at `path`: an iter_* folder itself, or a folder of them, in which
// latest_checkpointed_iteration.txt (a number, or "release") or `step` says which.
struct TorchCheckpointPlace {
  TorchKind kind = TorchKind::none;
  Path path;  // the folder with the files
};
TorchCheckpointPlace torch_checkpoint_kind(const Path& path, std::optional<int64_t> step = {});

// An error if `path` holds neither.
struct OpenedTorchCheckpoint {
  std::unique_ptr<TensorSource> source;
  TorchKind kind = TorchKind::none;
  std::string common_json;  // the run's arguments under "args", "iteration"; or "{}"
  // Why the optimizer's state is not in the source; empty: all of it is. `optimizer_saved`: there
  // is some, of a kind that is not read.
  std::string why_no_optimizer;
  bool optimizer_saved = false;
};
OpenedTorchCheckpoint open_torch_checkpoint(const Path& path, const TorchReadOptions& options = {},
                                            std::optional<int64_t> step = {});

}  // namespace phx
