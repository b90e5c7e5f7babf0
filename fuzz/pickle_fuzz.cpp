// Pickles from anywhere: read as a tree, then walked as the readers of checkpoints walk it, and
// read as the .metadata of a distributed checkpoint.
#include <cstddef>
#include <cstdint>
#include <span>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/pickle.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const phx::PickleTree tree(std::as_bytes(std::span(data, size)), "fuzz");
    phx::pickle_json(tree.root());
    phx::describe(tree.root());
    phx::TorchDistMetadata::parse(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const phx::Error&) {
  }
  return 0;
}
