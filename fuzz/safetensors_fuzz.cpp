// Headers of safetensors files, of which everything is checked before it is used: whatever the
// bytes are, the reader ends with tensors that lie in the file, or with an error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

// A file in memory: the reader maps it by its path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("input", 0)) {
    if (descriptor_ < 0 || write(descriptor_, data, size) != ssize_t(size)) std::abort();
  }
  ~MemoryFile() { close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile input(data, size);
  try {
    const phx::SafetensorsFile file(input.path());
    // Every byte that a tensor claims is there.
    unsigned sum = 0;
    for (const auto& tensor : file.tensors()) {
      for (const std::byte byte : tensor.bytes) sum += unsigned(byte);
      if (file.find(tensor.name) == nullptr) std::abort();
    }
    volatile unsigned keep = sum;
    (void)keep;
  } catch (const phx::Error&) {
  }
  return 0;
}
