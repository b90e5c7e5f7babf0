#include "phalanx/text/chat/chat_tokens.h"

#include <algorithm>
#include <span>

#include "phalanx/base/error.h"

namespace phx {
namespace {

// Where bytes of the text lie among its tokens.
class Places {
 public:
  Places(std::string_view text, const std::vector<int32_t>& tokens, const Tokenizer& tokenizer)
      : text_(text), tokens_(tokens), tokenizer_(tokenizer) {}

  // Tokens that end at `byte` or before, and whether the next one begins there.
  struct Place {
    size_t tokens;
    bool exact;
  };
  Place at(size_t byte) const {
    std::vector<int32_t> prefix;
    tokenizer_.encode(text_.substr(0, byte), prefix);
    if (prefix.size() <= tokens_.size() &&
        std::ranges::equal(prefix, std::span(tokens_).first(prefix.size())))
      return {prefix.size(), true};
    // A token reaches over this place, or the text before it is cut in another way: count bytes.
    PHX_CHECK(tokenizer_.decode(tokens_) == text_,
              "a token reaches over the border of an answer, and ", tokenizer_.description(),
              " does not give back the text it was given, so the place cannot be found");
    size_t low = 0, high = tokens_.size();  // decode(low tokens) ends at or before `byte`
    while (low < high) {
      const size_t middle = (low + high + 1) / 2;
      if (length(middle) <= byte)
        low = middle;
      else
        high = middle - 1;
    }
    return {low, length(low) == byte};
  }

 private:
  size_t length(size_t count) const {
    return tokenizer_.decode(std::span(tokens_).first(count)).size();
  }

  std::string_view text_;
  const std::vector<int32_t>& tokens_;
  const Tokenizer& tokenizer_;
};

// Most borders lie at special tokens, where the pieces have the same tokens as the whole: that is
// found out without encoding the text once a border.
bool mark_by_pieces(const ChatText& chat, const Tokenizer& tokenizer, ChatTokens& out) {
  std::vector<int32_t> pieces;
  std::vector<uint8_t> learned;
  size_t at = 0;
  const auto add = [&](size_t end, uint8_t mark) {
    if (end > at) tokenizer.encode(std::string_view(chat.text).substr(at, end - at), pieces);
    learned.resize(pieces.size(), mark);
    at = end;
  };
  for (const jinja::TextSpan& span : chat.learned) {
    add(span.begin, 0);
    add(span.end, 1);
  }
  add(chat.text.size(), 0);
  if (pieces != out.tokens) return false;
  out.learned = std::move(learned);
  return true;
}

}  // namespace

ChatTokens tokenize_chat(const ChatText& chat, const Tokenizer& tokenizer) {
  ChatTokens out;
  tokenizer.encode(chat.text, out.tokens);
  if (mark_by_pieces(chat, tokenizer, out)) return out;
  out.learned.assign(out.tokens.size(), 0);
  const Places places(chat.text, out.tokens, tokenizer);
  for (const jinja::TextSpan& span : chat.learned) {
    const Places::Place first = places.at(span.begin), last = places.at(span.end);
    const size_t end = std::min(out.tokens.size(), last.tokens + (last.exact ? 0 : 1));
    for (size_t i = first.tokens; i < end; ++i) out.learned[i] = 1;
  }
  return out;
}

ChatTokens tokenize_plain(const Conversation& conversation, const Tokenizer& tokenizer) {
  ChatTokens out =
      tokenize_chat({.text = conversation.prompt + conversation.completion,
                     .learned = {{conversation.prompt.size(),
                                  conversation.prompt.size() + conversation.completion.size()}}},
                    tokenizer);
  if (const auto end = tokenizer.eos() ? tokenizer.eos() : tokenizer.eod()) {
    out.tokens.push_back(*end);
    out.learned.push_back(1);
  }
  return out;
}

}  // namespace phx
