// Safetensors files: any bytes are a file whose tensors lie inside of it, or an error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int memory = ::memfd_create("input", MFD_CLOEXEC);
  if (memory < 0 || ::write(memory, data, size) != ssize_t(size)) __builtin_trap();
  try {
    const phx::SafetensorsFile file("/proc/self/fd/" + std::to_string(memory));
    unsigned sum = 0;
    for (const auto& tensor : file.tensors())
      for (const std::byte byte : tensor.bytes) sum += unsigned(byte);
    if (sum == 0xffffffffu) __builtin_trap();  // so that every byte is read
  } catch (const phx::Error&) {
  }
  ::close(memory);
  return 0;
}
