#include "phalanx/text/tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/split.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// Runs of word characters, and runs of what is neither those nor space.
class WordsAndSigns final : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    pieces.cut_each([](std::string_view text, auto&& emit) {
      size_t begin = 0;
      int previous = 0;  // 0 space, 1 word, 2 sign
      for (size_t at = 0; at < text.size();) {
        const size_t here = at;
        const uint8_t c = char_class(next_code(text, at));
        const int kind = c & kWord ? 1 : c & kSpace ? 0 : 2;
        if (kind == previous) continue;
        if (previous != 0) emit(begin, here);
        begin = here;
        previous = kind;
      }
      if (previous != 0) emit(begin, text.size());
    });
  }
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const JsonFields& fields)
      : sign_(fields.text("replacement", "\xE2\x96\x81")), split_(fields.flag("split", true)) {
    PHX_CHECK(!sign_.empty() && code_length(sign_[0]) == sign_.size(), "Metaspace's replacement ",
              sign_, " should be one character");
    // Old files say add_prefix_space, new ones prepend_scheme.
    const bool prefix = fields.flag("add_prefix_space", true);
    const std::string scheme = fields.text("prepend_scheme", prefix ? "always" : "never");
    always_ = scheme == "always", first_ = scheme == "first";
    if (!always_ && !first_ && scheme != "never") fields.refuse("the prepend_scheme " + scheme);
  }

  void cut(Pieces& pieces) const override {
    std::vector<bool> starts(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) starts[i] = pieces.starts_document(i);
    pieces.rewrite_each([&](size_t i, std::string& out) {
      const size_t begin = out.size();
      for (const char c : pieces[i]) {
        if (c == ' ') {
          out += sign_;
        } else {
          out += c;
        }
      }
      const bool has_sign = out.compare(begin, sign_.size(), sign_) == 0;
      if (!has_sign && (always_ || (first_ && starts[i]))) out.insert(begin, sign_);
    });
    if (!split_) return;
    pieces.cut_each([&](std::string_view text, auto&& emit) {
      size_t begin = 0, from = 0;
      while (true) {
        const size_t found = text.find(sign_, from);
        emit(begin, std::min(found, text.size()));
        if (found == std::string_view::npos) break;
        begin = found;
        from = found + sign_.size();
      }
    });
  }

 private:
  std::string sign_;
  bool split_, always_ = false, first_ = false;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(const JsonFields& fields, bool map)
      : prefix_(fields.flag("add_prefix_space", true)),
        regex_(fields.flag("use_regex", true)),
        map_(map) {}

  void cut(Pieces& pieces) const override {
    if (prefix_) {
      pieces.rewrite_each([&](size_t i, std::string& out) {
        if (pieces[i].substr(0, 1) != " ") out += ' ';
        out += pieces[i];
      });
    }
    if (regex_) {
      pieces.cut_each([](std::string_view text, auto&& emit) {
        for (size_t at = 0; at < text.size();) {
          const size_t end = word_end<WordPattern::gpt2>(text, at);
          emit(at, end);
          at = end;
        }
      });
    }
    if (map_) {
      pieces.rewrite_each([&](size_t i, std::string& out) {
        for (const char c : pieces[i]) append_code(out, byte_to_code(static_cast<uint8_t>(c)));
      });
    }
  }
  std::optional<WordPattern> words() const override {
    if (prefix_ || map_ || !regex_) return std::nullopt;
    return WordPattern::gpt2;
  }
  bool does_nothing() const { return !prefix_ && !regex_ && !map_; }

 private:
  bool prefix_, regex_, map_;
};

// Runs of one script. What goes with any script stays with what stands before it; at the beginning
// of a piece, where nothing does, it is dropped, as the library does.
class UnicodeScripts final : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    pieces.cut_each([](std::string_view text, auto&& emit) {
      size_t begin = 0;
      int last = 0;
      for (size_t at = 0; at < text.size();) {
        const size_t here = at;
        const int script = script_of(next_code(text, at));
        if (script == 0 || script == last) continue;
        if (last != 0) emit(begin, here);
        begin = here;
        last = script;
      }
      if (last != 0) emit(begin, text.size());
    });
  }
};

// Pieces of so many characters.
class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void cut(Pieces& pieces) const override {
    pieces.cut_each([&](std::string_view text, auto&& emit) {
      for (size_t begin = 0; begin < text.size();) {
        size_t end = begin;
        for (size_t i = 0; i < length_ && end < text.size(); ++i) end += code_length(text[end]);
        emit(begin, end);
        begin = end;
      }
    });
  }

 private:
  size_t length_;
};

void add_stages(const Json& json, bool map_last, PreTokenizers& all);

void add_sequence(const JsonFields& fields, bool map_last, PreTokenizers& all) {
  const Json& parts = fields.array("pretokenizers");
  for (size_t i = 0; i < parts.size(); ++i) {
    add_stages(parts[i], map_last || i + 1 < parts.size(), all);
  }
}

void add_stages(const Json& json, bool map, PreTokenizers& all) {
  const JsonFields fields(json, "pre-tokenizer");
  const std::string kind = fields.type();
  all.bytes = kind == "ByteLevel" && !map;  // holds for the last one alone
  const auto add = [&](std::unique_ptr<const PreTokenizer> stage) {
    all.stages.push_back(std::move(stage));
  };
  if (kind == "Sequence") {
    add_sequence(fields, map, all);
  } else if (kind == "ByteLevel") {
    auto stage = std::make_unique<ByteLevel>(fields, map);
    if (!stage->does_nothing()) add(std::move(stage));
  } else if (kind == "Split") {
    add(split_by_pattern(fields));
  } else if (kind == "Metaspace") {
    add(std::make_unique<Metaspace>(fields));
  } else if (kind == "Whitespace") {
    add(std::make_unique<WordsAndSigns>());
  } else if (kind == "WhitespaceSplit") {
    add(split_at_class(SplitBehavior::removed, kSpace));
  } else if (kind == "BertPreTokenizer") {
    add(split_at_class(SplitBehavior::removed, kSpace));
    add(split_at_class(SplitBehavior::isolated, kPunctuation));
  } else if (kind == "Punctuation") {
    add(split_at_class(parse_split_behavior(fields, fields.text("behavior", "Isolated")),
                       kPunctuation));
  } else if (kind == "Digits") {
    const bool each = fields.flag("individual_digits", false);
    add(split_at_class(each ? SplitBehavior::isolated : SplitBehavior::contiguous, kNumeric));
  } else if (kind == "CharDelimiterSplit") {
    const std::u32string delimiter = to_codes(fields.text("delimiter"));
    if (delimiter.size() != 1) fields.refuse("a delimiter that is not one character");
    add(split_at_character(SplitBehavior::removed, uint32_t{delimiter[0]}));
  } else if (kind == "UnicodeScripts") {
    add(std::make_unique<UnicodeScripts>());
  } else if (kind == "FixedLength") {
    const int64_t length = fields.number("length", 5);
    if (length < 1) fields.refuse("a length below 1");
    add(std::make_unique<FixedLength>(static_cast<size_t>(length)));
  } else {
    fields.refuse_type();
  }
}

}  // namespace

void Pieces::reset(std::string_view text, bool first) {
  text_ = text;
  first_ = first;
  pieces_.clear();
  if (!text.empty()) pieces_.push_back({0, text.size()});
}

PreTokenizers make_pre_tokenizers(const Json& json, ByteLevelMapping mapping) {
  PreTokenizers all;
  if (!json.is_null()) add_stages(json, mapping == ByteLevelMapping::keep, all);
  return all;
}

}  // namespace phx
