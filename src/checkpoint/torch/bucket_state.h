// Adam's state as Megatron's distributed optimizer saves it by default (dp_reshardable). Every
// model-parallel rank has the parameters of its part of the model in one flat buffer, cut into
// buckets; a file's tensor is a bucket without its final padding:
//
//   optimizer.distributed.dp_group_idx_{pp * TP +
//   tp}.gbuf_idx_{chunk}.dtype_(..).bucket_idx_{k}.exp_avg
//
// Experts that are cut over several ranks have buffers and an optimizer of their own: then keys
// begin with optimizer.chained_0.distributed for the others and optimizer.chained_1.distributed for
// experts, whose ranks are numbered (pp * EP + ep) * ETP + etp. Otherwise they lie among the
// others.
//
// Nothing in the file names the parameters: megatron_buffers.h and the run's arguments say where
// they lie, and the reader has to compare the masters that it finds with the weights.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/megatron_buffers.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

namespace phx {

// The elements of `box`, dense, are the elements of `flat` from `begin` on.
struct FlatPart {
  Box box;
  const TorchDistTensor* flat = nullptr;
  int64_t begin = 0;
};

bool has_bucket_state(const TorchDistMetadata& metadata);

// Where the state of each of `model`'s tensors (under our names, with all rows of a padded
// vocabulary) lies: "optimizer.exp_avg.NAME", "optimizer.exp_avg_sq.NAME" and
// "optimizer.master.NAME". An Error says why it cannot be told.
std::map<std::string, std::vector<FlatPart>> bucket_parts(
    const TorchDistMetadata& metadata, const std::map<std::string, TensorInfo>& model,
    const nlohmann::json& args, const ModuleOrder& order);

}  // namespace phx
