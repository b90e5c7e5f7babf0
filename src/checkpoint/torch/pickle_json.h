// The plain part of a pickled object as JSON: numbers, texts, lists and dicts, and objects as their
// attributes (argparse.Namespace: a run's arguments). What has no place in JSON is left out:
// tensors, bytes, dicts with other keys than texts and numbers.
#pragma once

#include <string>

#include "phalanx/checkpoint/torch/pickle.h"

namespace phx {

class TorchArchive;

std::string pickle_json(const PickleValue& value);
// The same with tensors of one element as numbers: Megatron keeps its loss scale in one.
std::string pickle_json(const PickleValue& value, const TorchArchive& archive);

}  // namespace phx
