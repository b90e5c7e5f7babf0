// Files of torch.save from anywhere, as zip archives and in the older form: opened, and every
// tensor read once through its strides.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/torch_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const phx::TorchArchive archive(std::as_bytes(std::span(data, size)), "fuzz");
    for (const auto& [name, tensor] : archive.tensors(archive.root())) {
      const int64_t bytes = *phx::num_elements(tensor.info.shape) * phx::size_of(tensor.info.dtype);
      if (bytes > (1 << 20)) continue;  // views of one element many times over: a caller's memory
      std::vector<std::byte> out(static_cast<size_t>(bytes));
      const phx::Dims zero(tensor.info.shape.size(), 0);
      const phx::Dims strides = phx::dense_strides(tensor.info.shape);
      tensor.copy({zero, tensor.info.shape}, {out.data(), strides});
    }
  } catch (const phx::Error&) {
  }
  return 0;
}
