// The plain part of a pickled object as JSON: numbers, texts, lists and dicts, and objects as their
// attributes (argparse.Namespace: a run's arguments). What has no place in JSON is left out:
// tensors, bytes, dicts with other keys than texts and numbers.
#pragma once

#include <string>

#include "checkpoint/torch/pickle.h"

namespace phx {

std::string pickle_json(const PickleValue& value);

}  // namespace phx
