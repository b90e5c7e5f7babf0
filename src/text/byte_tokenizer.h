// The simplest tokenizer: a token is a byte, 0..255, and 256 ends a document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {

struct ByteTokenizer {
  static constexpr int32_t kEod = 256;
  static constexpr int32_t kVocabSize = 257;

  static std::vector<int32_t> encode(std::string_view text) {
    std::vector<int32_t> tokens(text.size());
    for (size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<unsigned char>(text[i]);
    return tokens;
  }

  // The end of a document becomes a line feed; the padding ids of a larger vocabulary are an error.
  static std::string decode(std::span<const int32_t> tokens) {
    std::string text(tokens.size(), '\n');
    for (size_t i = 0; i < tokens.size(); ++i) {
      PHX_CHECK(tokens[i] >= 0 && tokens[i] < kVocabSize, "byte token ", tokens[i], " at ", i,
                " is not in 0..", kVocabSize - 1);
      if (tokens[i] != kEod) text[i] = static_cast<char>(tokens[i]);
    }
    return text;
  }
};

}  // namespace phx
