#include "phalanx/text/tokenizer.h"

namespace phx {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// A character has at most four bytes: when more tokens than that still end in U+FFFD, it is meant.
constexpr size_t kMostPending = 4;

bool ends_open(std::string_view text) {
  return text.size() >= kReplacement.size() &&
         text.substr(text.size() - kReplacement.size()) == kReplacement;
}

}  // namespace

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  return advance(/*all=*/false);
}

std::string StreamDecoder::finish() { return advance(/*all=*/true); }

// Decoders look at neighbours (a space before a word, bytes of one character), so that the new text
// is what the shown tokens and the pending ones give together beyond what the shown ones give
// alone.
std::string StreamDecoder::advance(bool all) {
  if (ids_.size() == shown_) return "";
  const std::span<const int32_t> tokens(ids_);
  const std::string before = tokenizer_.decode(tokens.first(shown_));
  const std::string now = tokenizer_.decode(tokens);
  const bool open = ends_open(now) && ids_.size() - shown_ <= kMostPending;
  if (!all && (open || now.size() < before.size())) return "";
  std::string text = now.substr(std::min(before.size(), now.size()));
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(shown_));
  shown_ = ids_.size();
  return text;
}

}  // namespace phx
