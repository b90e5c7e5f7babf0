// The .metadata of a distributed checkpoint from anywhere: a pickle of torch's own classes, of
// which shapes, chunks and places in files are taken.
#include <cstddef>
#include <cstdint>
#include <span>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    phx::TorchDistMetadata::parse(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const phx::Error&) {
  }
  return 0;
}
