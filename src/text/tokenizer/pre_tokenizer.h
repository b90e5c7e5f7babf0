// The "pre_tokenizer" of a tokenizer.json: cuts a text into the words that the model sees.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/text/tokenizer/word_splitter.h"

namespace phx {

// Pieces of a text, in order. Cutting moves bounds only; a stage that changes characters writes a
// new text.
class Pieces {
 public:
  struct Piece {
    size_t begin, end;
  };

  // One piece, the whole; `text` must outlive it. `first`: nothing of the document stands before
  // it.
  void reset(std::string_view text, bool first);

  size_t size() const { return pieces_.size(); }
  std::string_view operator[](size_t i) const { return text_.substr(begin(i), end(i) - begin(i)); }
  bool starts_document(size_t i) const { return first_ && begin(i) == 0; }

  // Replaces each piece by the pieces that cut(piece, emit) emits: emit(begin, end) within the
  // piece. Empty ones are dropped.
  template <class Cut>
  void cut_each(Cut&& cut) {
    next_.clear();
    for (size_t i = 0; i < size(); ++i) {
      const size_t base = begin(i);
      cut((*this)[i], [&](size_t from, size_t to) {
        if (from < to) next_.push_back({base + from, base + to});
      });
    }
    pieces_.swap(next_);
  }

  // Replaces the text of each piece by what rewrite(i, out) appends.
  template <class Rewrite>
  void rewrite_each(Rewrite&& rewrite) {
    std::string out;
    out.reserve(text_.size() + text_.size() / 4);
    next_.clear();
    for (size_t i = 0; i < size(); ++i) {
      const size_t begin = out.size();
      rewrite(i, out);
      if (out.size() > begin) next_.push_back({begin, out.size()});
    }
    owned_ = std::move(out);
    text_ = owned_;
    pieces_.swap(next_);
  }

 private:
  size_t begin(size_t i) const { return pieces_[i].begin; }
  size_t end(size_t i) const { return pieces_[i].end; }

  std::string_view text_;
  std::string owned_;
  std::vector<Piece> pieces_, next_;
  bool first_ = false;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void cut(Pieces& pieces) const = 0;
  // Set when this stage does nothing but cut words by one of the patterns written by hand.
  virtual std::optional<WordPattern> words() const { return std::nullopt; }
};

// The stages in order; none for JSON's null. `bytes`: the last stage is ByteLevel, and its mapping
// of bytes to printable characters has been left out, because the model works on bytes as they are.
struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> stages;
  bool bytes = false;
};

enum class ByteLevelMapping { keep, leave_out };
PreTokenizers make_pre_tokenizers(const nlohmann::json& json, ByteLevelMapping mapping);

}  // namespace phx
