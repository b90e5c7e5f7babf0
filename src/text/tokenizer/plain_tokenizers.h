// Tokenizers without a file: bytes, and Megatron's NullTokenizer.
#pragma once

#include <memory>
#include <optional>

#include "phalanx/text/tokenizer.h"

namespace phx {

std::unique_ptr<const Tokenizer> make_byte_tokenizer();

// A character is the token of its code point modulo the vocabulary, and text is shown as numbers.
// `eod` is the last of the vocabulary unless given; a `pad` of -1 is none.
std::unique_ptr<const Tokenizer> make_null_tokenizer(int64_t vocab_size, std::optional<int64_t> eod,
                                                     std::optional<int64_t> pad);

}  // namespace phx
