// A pair of files with any .idx: opening it, looking at all of it and copying every sequence either
// works or throws phx::Error.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/data/gpt/gpt_index.h"
#include "phalanx/data/indexed/indexed_dataset.h"

namespace {

const phx::Path& folder() {
  static const phx::Path path = [] {
    std::string name = (std::filesystem::temp_directory_path() / "idx_fuzz_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    return phx::Path(name);
  }();
  return path;
}

void write(const phx::Path& path, const uint8_t* data, size_t size) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::write(file, data, size) != ssize_t(size)) std::abort();
  ::close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  // The first byte says how much of the rest is the .bin.
  const size_t tokens = std::min<size_t>(data[0], size - 1);
  const phx::Path prefix = folder() / "pair";
  write(phx::bin_file(prefix), data + 1, tokens);
  write(phx::idx_file(prefix), data + 1 + tokens, size - 1 - tokens);
  try {
    const phx::IndexedDataset pair(prefix);
    std::vector<int32_t> out;
    for (int64_t i = 0; i < pair.num_sequences(); ++i) {
      try {
        out.resize(size_t(std::clamp<int32_t>(pair.length(i), 0, 4096)));
        pair.copy(i, 0, out);
      } catch (const phx::Error&) {
      }
    }
    pair.check_all();
    const phx::GptIndexRequest request{
        .documents = {0, pair.num_sequences()}, .seq_length = 3, .num_samples = 20};
    if (pair.num_tokens() > 0) phx::GptIndex::build(pair.lengths(), request, 1);
  } catch (const phx::Error&) {
  }
  return 0;
}
