// Unigram, WordPiece and WordLevel.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/text/tokenizer/byte_trie.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/token_model.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// The likeliest way to cut a text into pieces, by their log probabilities.
class Unigram final : public TokenModel {
 public:
  explicit Unigram(const JsonFields& fields) : byte_fallback_(fields.flag("byte_fallback", false)) {
    double lowest = std::numeric_limits<double>::infinity();
    for (const Json& entry : fields.array("vocab")) {
      PHX_CHECK(
          entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number(),
          "a piece of a Unigram model should be [text, score], but is ", json_text(entry));
      const std::string piece = entry[0].get<std::string>();
      vocabulary_.add(piece, static_cast<int64_t>(scores_.size()));
      scores_.push_back(entry[1].get<double>());
      lowest = std::min(lowest, scores_.back());
    }
    for (const auto& [piece, id] : vocabulary_.ids()) {
      if (!piece.empty()) pieces_.add(piece, id);
    }
    constexpr double kPenalty = 10;  // below the worst piece; SentencePiece's number
    unknown_score_ = lowest - kPenalty;
    if (!fields.is_null("unk_id")) {
      unknown_ = fields.number("unk_id", 0);
      PHX_CHECK(unknown_ >= 0 && unknown_ < static_cast<int64_t>(scores_.size()), "unk_id is ",
                unknown_, ", but the vocabulary has ", scores_.size(), " pieces");
    }
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", byte);
      byte_ids_[byte] = vocabulary_.find(name).value_or(-1);
    }
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override {
    std::vector<Node> nodes = best_paths(word);
    std::vector<size_t> bounds;  // from the end
    for (size_t end = word.size(); end > 0;) {
      bounds.push_back(end);
      // Unknown neighbours are one piece.
      const bool unknown = nodes[end].id == unknown_;
      end = nodes[end].begin;
      while (unknown && end > 0 && nodes[end].id == unknown_) end = nodes[end].begin;
    }
    size_t begin = 0;
    for (size_t i = bounds.size(); i-- > 0;) {
      put(word.substr(begin, bounds[i] - begin), ids);
      begin = bounds[i];
    }
  }
  const char* name() const override { return "Unigram"; }

 private:
  struct Node {
    int64_t id = -1;
    double score = 0;
    size_t begin = 0;
    bool reached = false;
  };

  std::vector<Node> best_paths(std::string_view word) const {
    std::vector<Node> nodes(word.size() + 1);
    const auto offer = [&](size_t begin, size_t end, int64_t id, double score) {
      Node& node = nodes[end];
      const double total = nodes[begin].score + score;
      if (!node.reached || total > node.score) node = {id, total, begin, true};
    };
    for (size_t begin = 0; begin < word.size();) {
      const size_t character = code_length(word[begin]);
      bool single = false;
      uint32_t node = ByteTrie::kRoot;
      for (size_t at = begin; at < word.size();) {
        node = pieces_.child(node, word[at++]);
        if (node == ByteTrie::kNoNode) break;
        const int32_t id = pieces_.value(node);
        if (id < 0) continue;
        offer(begin, at, id, scores_[static_cast<size_t>(id)]);
        single = single || at == begin + character;
      }
      if (!single) {
        PHX_CHECK(unknown_ >= 0, "the text holds ", word.substr(begin, character),
                  ", and the Unigram model has no unknown token");
        offer(begin, begin + character, unknown_, unknown_score_);
      }
      begin += character;
    }
    return nodes;
  }

  void put(std::string_view piece, std::vector<int32_t>& ids) const {
    if (const auto id = vocabulary_.find(piece)) {
      ids.push_back(*id);
      return;
    }
    const bool fallback = byte_fallback_ && std::all_of(piece.begin(), piece.end(), [&](char c) {
                            return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                          });
    if (!fallback) return ids.push_back(static_cast<int32_t>(unknown_));
    for (const char c : piece) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  }

  bool byte_fallback_;
  int64_t unknown_ = -1;
  double unknown_score_ = 0;
  std::vector<double> scores_;
  ByteTrie pieces_;
  int32_t byte_ids_[256];
};

void read_words(const JsonFields& fields, Vocabulary& vocabulary) {
  for (const auto& [token, id] : fields.object("vocab").items()) {
    PHX_CHECK(id.is_number_integer(), "the id of the token ", token,
              " should be an integer, but is ", id.type_name());
    vocabulary.add(token, id.get<int64_t>());
  }
}

// The longest token first, then the longest continuation, and so on; unknown if that gets stuck.
class WordPiece final : public TokenModel {
 public:
  explicit WordPiece(const JsonFields& fields)
      : unknown_text_(fields.text("unk_token", "[UNK]")),
        prefix_(fields.text("continuing_subword_prefix", "##")),
        longest_(static_cast<size_t>(
            std::max<int64_t>(0, fields.number("max_input_chars_per_word", 100)))) {
    read_words(fields, vocabulary_);
    for (const auto& [token, id] : vocabulary_.ids()) {
      if (!token.empty()) words_.add(token, id);
    }
    prefix_node_ = ByteTrie::kRoot;
    for (const char c : prefix_) {
      if (prefix_node_ != ByteTrie::kNoNode) prefix_node_ = words_.child(prefix_node_, c);
    }
    unknown_ = vocabulary_.find(unknown_text_).value_or(-1);
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    if (characters(word) <= longest_ && cut(word, ids)) return;
    ids.resize(before);
    PHX_CHECK(unknown_ >= 0, "the unknown token ", unknown_text_, " is not in the vocabulary");
    ids.push_back(unknown_);
  }
  const char* name() const override { return "WordPiece"; }

 private:
  static size_t characters(std::string_view word) {
    size_t count = 0;
    for (size_t at = 0; at < word.size(); at += code_length(word[at])) ++count;
    return count;
  }

  bool cut(std::string_view word, std::vector<int32_t>& ids) const {
    for (size_t begin = 0; begin < word.size();) {
      uint32_t node = begin == 0 ? ByteTrie::kRoot : prefix_node_;
      size_t end = begin;
      int32_t best = -1;
      for (size_t at = begin; at < word.size() && node != ByteTrie::kNoNode;) {
        node = words_.child(node, word[at++]);
        if (node == ByteTrie::kNoNode || words_.value(node) < 0) continue;
        best = words_.value(node);
        end = at;
      }
      if (best < 0) return false;
      ids.push_back(best);
      begin = end;
    }
    return true;
  }

  std::string unknown_text_, prefix_;
  size_t longest_;
  int32_t unknown_;
  ByteTrie words_;
  uint32_t prefix_node_;
};

class WordLevel final : public TokenModel {
 public:
  explicit WordLevel(const JsonFields& fields) : unknown_text_(fields.text("unk_token", "<unk>")) {
    read_words(fields, vocabulary_);
    unknown_ = vocabulary_.find(unknown_text_).value_or(-1);
  }
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const override {
    const int32_t id = vocabulary_.find(word).value_or(unknown_);
    PHX_CHECK(id >= 0, "the text holds ", word, ", and the unknown token ", unknown_text_,
              " is not in the vocabulary");
    ids.push_back(id);
  }
  const char* name() const override { return "WordLevel"; }

 private:
  std::string unknown_text_;
  int32_t unknown_;
};

}  // namespace

std::unique_ptr<const TokenModel> make_unigram(const Json& model) {
  return std::make_unique<Unigram>(JsonFields(model, "model"));
}
std::unique_ptr<const TokenModel> make_word_piece(const Json& model) {
  return std::make_unique<WordPiece>(JsonFields(model, "model"));
}
std::unique_ptr<const TokenModel> make_word_level(const Json& model) {
  return std::make_unique<WordLevel>(JsonFields(model, "model"));
}

}  // namespace phx
