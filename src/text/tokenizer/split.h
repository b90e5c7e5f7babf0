// Pre-tokenizers that cut a text at matches of a pattern, or at characters of a kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/pre_tokenizer.h"

namespace phx {

// What becomes of a match: nothing, a piece, a part of the piece before or after it, or one piece
// with the matches beside it.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitBehavior parse_split_behavior(const JsonFields& fields, const std::string& text);

// The pre-tokenizer Split of a tokenizer.json.
std::unique_ptr<const PreTokenizer> split_by_pattern(const JsonFields& fields);
// At characters that have one of the bits of char_class (unicode.h).
std::unique_ptr<const PreTokenizer> split_at_class(SplitBehavior behavior, uint8_t bits);
std::unique_ptr<const PreTokenizer> split_at_character(SplitBehavior behavior, uint32_t code);

}  // namespace phx
