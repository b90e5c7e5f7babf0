#include "phalanx/text/tokenizer/added_tokens.h"

#include <cstring>

namespace phx {

void AddedTokens::add(const AddedToken& token, const std::string& text) {
  if (text.empty()) return;
  trie_.add(text, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
  bool& begins = begins_[static_cast<uint8_t>(text[0])];
  if (!begins) first_bytes_ += text[0];
  begins = true;
}

size_t AddedTokens::candidate(std::string_view text, size_t from) const {
  if (first_bytes_.size() == 1) {
    const void* found = std::memchr(text.data() + from, first_bytes_[0], text.size() - from);
    return found == nullptr ? text.size()
                            : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  }
  if (first_bytes_.size() <= 4) {  // blocks without any of them are passed over by vector compares
    constexpr size_t kBlock = 64;
    char wanted[4];
    for (size_t i = 0; i < 4; ++i) wanted[i] = first_bytes_[std::min(i, first_bytes_.size() - 1)];
    for (; from + kBlock <= text.size(); from += kBlock) {
      uint8_t any = 0;
      for (size_t i = 0; i < kBlock; ++i) {
        const char c = text[from + i];
        any |= static_cast<uint8_t>((c == wanted[0]) | (c == wanted[1]) | (c == wanted[2]) |
                                    (c == wanted[3]));
      }
      if (any) break;
    }
  }
  while (from < text.size() && !begins_[static_cast<uint8_t>(text[from])]) ++from;
  return from;
}

const AddedToken* AddedTokens::find(std::string_view text, size_t from, size_t& begin,
                                    size_t& end) const {
  if (tokens_.empty()) return nullptr;
  for (begin = candidate(text, from); begin < text.size(); begin = candidate(text, begin + 1)) {
    uint32_t node = ByteTrie::kRoot;
    int32_t best = -1;
    for (size_t at = begin; at < text.size();) {
      node = trie_.child(node, text[at++]);
      if (node == ByteTrie::kNoNode) break;
      if (trie_.value(node) < 0) continue;
      best = trie_.value(node);
      end = at;
    }
    if (best >= 0) return &tokens_[static_cast<size_t>(best)];
  }
  return nullptr;
}

bool AddedTokens::touches_word(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t at = previous_code(text, begin);
    if (char_class(next_code(text, at)) & kWord) return true;
  }
  return end < text.size() && (char_class(next_code(text, end)) & kWord);
}

size_t AddedTokens::spaces_begin(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t before = previous_code(text, end);
    size_t at = before;
    if (!(char_class(next_code(text, at)) & kSpace)) break;
    end = before;
  }
  return end;
}

size_t AddedTokens::spaces_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t at = begin;
    if (!(char_class(next_code(text, at)) & kSpace)) break;
    begin = at;
  }
  return begin;
}

}  // namespace phx
