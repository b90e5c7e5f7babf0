// A tokenizer for tests that is easy to follow: special tokens in <| |> or as listed, words with
// the blank before them, and single characters for the rest. Words get their ids as they come, so
// it is for one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer.h"

namespace phx {

class WordTokenizer : public Tokenizer {
 public:
  WordTokenizer() { id_of("<|eod|>"); }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    while (!text.empty()) {
      const size_t size = next(text);
      ids.push_back(id_of(std::string(text.substr(0, size))));
      text.remove_prefix(size);
    }
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += token_text(id);
    return text;
  }
  int64_t vocab_size() const override { return 1 << 20; }
  std::optional<int32_t> token_id(std::string_view token) const override {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string token_text(int32_t id) const override { return texts_.at(size_t(id)); }
  std::optional<int32_t> eod() const override { return 0; }
  std::string description() const override { return "words as they come"; }
  using Tokenizer::encode;

 private:
  static size_t next(std::string_view text) {
    if (text.starts_with("<|"))
      if (const size_t end = text.find("|>"); end != std::string_view::npos) return end + 2;
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    size_t size = text[0] == ' ' || text[0] == '\n' ? 1 : 0;
    while (size < text.size() && is_letter(text[size])) ++size;
    return size == 0 ? 1 : size;
  }
  int32_t id_of(const std::string& token) const {
    const auto [found, made] = ids_.try_emplace(token, int32_t(texts_.size()));
    if (made) texts_.push_back(token);
    return found->second;
  }

  mutable std::map<std::string, int32_t> ids_;
  mutable std::vector<std::string> texts_;
};

}  // namespace phx
