// A checkpoint of one rank in one safetensors file: every tensor under its global name and in its
// global, unpadded layout, so that nothing in it depends on how the rank keeps its memory.
//
//   DIR/iter_0000100/model.safetensors    weights, optimizer state, and as metadata the options and
//   counters DIR/latest_checkpointed_iteration.txt
//
// Both appear by rename, complete or not at all. Loading is strict: every tensor is accounted for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "nn/parameter_store.h"

namespace phx {

// A flat buffer laid out like the store's weights: a moment, a master copy. Saved as prefix + name.
struct FlatState {
  std::string prefix;  // "optimizer.exp_avg."; "" for the weights themselves
  Tensor flat;
};

Path checkpoint_file(const Path& folder, int64_t iteration);

// The iteration that latest_checkpointed_iteration.txt names; nothing if the folder has no
// checkpoint.
std::optional<int64_t> latest_checkpoint(const Path& folder);

void save_checkpoint(const Path& folder, int64_t iteration, const ParameterStore& store,
                     std::span<const FlatState> states, const SafetensorsMetadata& metadata);

// Fills the states from the file. Weights (prefix "") of another floating type are converted when
// only they are loaded. Tensors of the file that no state asks for are an error unless their name
// starts with one of `ignored` prefixes (optimizer state when only the weights are wanted).
void load_checkpoint(const SafetensorsFile& file, const ParameterStore& store,
                     std::span<const FlatState> states, std::span<const std::string> ignored = {});

// One parameter's rows between local memory and the global layout, on the host.
std::vector<std::byte> to_global(const Parameter& parameter, const Tensor& local);
void from_global(const Parameter& parameter, std::span<const std::byte> global, Tensor& local);

std::string safetensors_dtype(DType dtype);

}  // namespace phx
