// A chat as tokens, each with whether it is learned.
#pragma once

#include <cstdint>
#include <vector>

#include "phalanx/text/chat/chat_template.h"
#include "phalanx/text/tokenizer.h"

namespace phx {

struct ChatTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;  // 1: the model learns to write this token
};

// The tokens of the whole text, as a model meets them; a token with some of a learned span in it is
// learned. (The text is never cut before it is encoded: SentencePiece would begin each piece with a
// space of its own.)
ChatTokens tokenize_chat(const ChatText& chat, const Tokenizer& tokenizer);

// Prompt and completion one after the other, then the token that ends a text where there is one;
// completion and end are learned.
ChatTokens tokenize_plain(const Conversation& conversation, const Tokenizer& tokenizer);

}  // namespace phx
