// Any bytes as JSON lines, plain or compressed: blocks of lines come out whole, and every line is a
// text or a phx::Error. Small blocks, so that lines cross them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/data/preprocess/json_line.h"
#include "phalanx/data/preprocess/text_input.h"

namespace {

const phx::Path& folder() {
  static const phx::Path path = [] {
    std::string name = (std::filesystem::temp_directory_path() / "jsonl_fuzz_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    return phx::Path(name);
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  static const char* const names[] = {"lines.jsonl", "lines.jsonl.gz", "lines.jsonl.zst"};
  const phx::Path path = folder() / names[data[0] % 3];
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::write(file, data + 1, size - 1) != ssize_t(size - 1)) std::abort();
  ::close(file);
  const std::vector<std::string> keys = {"text", "b"};
  try {
    phx::BlockReader reader({path}, /*block_bytes=*/1 + data[0] / 3 % 64);
    phx::LineBlock block;
    phx::JsonLineParser parser;
    std::string all;
    while (reader.next(block)) {
      std::string_view text = block.text();
      all += text;
      if (all.size() > (1 << 20)) return 0;  // a bomb
      while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        try {
          size_t total = 0;
          for (const std::string_view one : parser.parse(text.substr(0, end), keys))
            total += one.size();
          if (total > all.size()) std::abort();
        } catch (const phx::Error&) {
        }
        text.remove_prefix(std::min(end + 1, text.size()));
      }
    }
    if (data[0] % 3 == 0 && all != std::string(reinterpret_cast<const char*>(data + 1), size - 1))
      std::abort();
  } catch (const phx::Error&) {
  }
  return 0;
}
