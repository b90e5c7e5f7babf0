// Tokens that are found in the text before anything else: "<|im_start|>" is one token wherever it
// stands, and the text is cut there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/text/tokenizer/byte_trie.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;             // not inside of a word
  bool lstrip = false, rstrip = false;  // takes the spaces before or after it along
  bool normalized = true;               // is looked for in the normalized text
  bool special = false;
};

class AddedTokens {
 public:
  // `text` is what to look for: the content, normalized where the token asks for that.
  void add(const AddedToken& token, const std::string& text);

  bool empty() const { return tokens_.empty(); }

  // Calls plain(begin, end) and token(id) for the parts of `text`, from left to right. The longest
  // token at the leftmost place wins.
  template <class Plain, class Token>
  void split(std::string_view text, Plain&& plain, Token&& token) const {
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
      size_t begin, end;
      const AddedToken* found = find(text, from, begin, end);
      if (found == nullptr) break;
      from = end;
      if (found->single_word && touches_word(text, begin, end)) continue;
      if (found->lstrip) begin = std::max(spaces_begin(text, begin), done);
      if (found->rstrip) end = spaces_end(text, end);
      if (done < begin) plain(done, begin);
      token(found->id);
      done = end;
    }
    if (done < text.size()) plain(done, text.size());
  }

 private:
  const AddedToken* find(std::string_view text, size_t from, size_t& begin, size_t& end) const;
  // The first byte at or after `from` that a token may begin with.
  size_t candidate(std::string_view text, size_t from) const;
  static bool touches_word(std::string_view text, size_t begin, size_t end);
  static size_t spaces_begin(std::string_view text, size_t end);
  static size_t spaces_end(std::string_view text, size_t begin);

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
  bool begins_[256] = {};
  std::string first_bytes_;  // those of begins_
};

}  // namespace phx
