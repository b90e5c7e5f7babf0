// The normalizer "Precompiled": SentencePiece's table of replacements, a double-array trie over
// UTF-8 and the texts it leads to, applied as the Hugging Face library does: to a grapheme of fewer
// than six bytes as a whole, else to each of its characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

class CharsMap {
 public:
  explicit CharsMap(const std::string& base64);

  std::string apply(std::string_view text) const;

 private:
  // Whether the trie knows a beginning of `chunk`; what it becomes is appended.
  bool transform(std::string_view chunk, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

// "TWE=" to "Ma"; an error for what is not base64.
std::string decode_base64(std::string_view text);

}  // namespace phx
