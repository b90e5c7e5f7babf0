#include "phalanx/text/tokenizer/split.h"

#include <vector>

#include "phalanx/text/tokenizer/pattern.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

struct Span {
  size_t begin, end;
  bool match;
};

// Matches and what lies between them become pieces.
template <class Emit>
void emit_spans(std::vector<Span>& spans, SplitBehavior behavior, Emit&& emit) {
  if (behavior == SplitBehavior::merged_with_next) {
    for (size_t i = spans.size(); i-- > 0;) {  // a match joins what follows, unless that is one too
      if (!spans[i].match || i + 1 == spans.size() || spans[i + 1].match) continue;
      spans[i + 1].begin = spans[i].begin;
      spans[i].end = spans[i].begin;
    }
  }
  size_t begin = 0, end = 0;
  bool previous = false;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const bool joins = (behavior == SplitBehavior::contiguous && span.match == previous) ||
                       (behavior == SplitBehavior::merged_with_previous && span.match && !previous);
    if (!joins) {
      emit(begin, end);
      begin = span.begin;
    }
    end = span.end;
    if (behavior == SplitBehavior::removed && span.match) begin = end;
    previous = span.match;
  }
  emit(begin, end);
}

void spans_of(const TextPattern& pattern, bool invert, std::string_view text,
              std::vector<Span>& spans) {
  spans.clear();
  size_t done = 0;
  pattern.for_each_match(text, [&](size_t begin, size_t end) {
    if (done < begin) spans.push_back({done, begin, invert});
    spans.push_back({begin, end, !invert});
    done = end;
  });
  if (done < text.size()) spans.push_back({done, text.size(), invert});
}

class Split final : public PreTokenizer {
 public:
  Split(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {
    // These patterns match everywhere: isolated matches and removed gaps are the same words.
    const bool words = (behavior == SplitBehavior::isolated && !invert) ||
                       (behavior == SplitBehavior::removed && invert);
    if (words && pattern_.regex_text()) words_ = known_pattern(*pattern_.regex_text());
  }

  void cut(Pieces& pieces) const override {
    if (words_) {
      for_word_pattern(*words_, [&]<WordPattern kPattern>() {
        pieces.cut_each([](std::string_view text, auto&& emit) {
          for (size_t at = 0; at < text.size();) {
            const size_t end = word_end<kPattern>(text, at);
            emit(at, end);
            at = end;
          }
        });
      });
      return;
    }
    std::vector<Span> spans;
    pieces.cut_each([&](std::string_view text, auto&& emit) {
      spans_of(pattern_, invert_, text, spans);
      emit_spans(spans, behavior_, emit);
    });
  }
  std::optional<WordPattern> words() const override { return words_; }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
  std::optional<WordPattern> words_;
};

// Cuts at characters that `is` holds for.
template <class Is>
class SplitAt final : public PreTokenizer {
 public:
  SplitAt(Is is, SplitBehavior behavior) : is_(std::move(is)), behavior_(behavior) {}
  void cut(Pieces& pieces) const override {
    std::vector<Span> spans;
    pieces.cut_each([&](std::string_view text, auto&& emit) {
      spans.clear();
      size_t done = 0;
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        if (!is_(next_code(text, at))) continue;
        if (done < begin) spans.push_back({done, begin, false});
        spans.push_back({begin, at, true});
        done = at;
      }
      if (done < text.size()) spans.push_back({done, text.size(), false});
      emit_spans(spans, behavior_, emit);
    });
  }

 private:
  Is is_;
  SplitBehavior behavior_;
};

template <class Is>
std::unique_ptr<const PreTokenizer> split_at(SplitBehavior behavior, Is is) {
  return std::make_unique<SplitAt<Is>>(std::move(is), behavior);
}
}  // namespace

SplitBehavior parse_split_behavior(const JsonFields& fields, const std::string& text) {
  if (text == "Removed") return SplitBehavior::removed;
  if (text == "Isolated") return SplitBehavior::isolated;
  if (text == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (text == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (text == "Contiguous") return SplitBehavior::contiguous;
  fields.refuse("the behavior " + text);
}

std::unique_ptr<const PreTokenizer> split_by_pattern(const JsonFields& fields) {
  return std::make_unique<Split>(TextPattern(fields.at("pattern")),
                                 parse_split_behavior(fields, fields.text("behavior")),
                                 fields.flag("invert", false));
}

std::unique_ptr<const PreTokenizer> split_at_class(SplitBehavior behavior, uint8_t bits) {
  return split_at(behavior, [bits](uint32_t code) { return (char_class(code) & bits) != 0; });
}

std::unique_ptr<const PreTokenizer> split_at_character(SplitBehavior behavior, uint32_t code) {
  return split_at(behavior, [code](uint32_t other) { return other == code; });
}

}  // namespace phx
