#include "phalanx/text/tokenizer/vocabulary.h"

#include "phalanx/base/error.h"

namespace phx {

void Vocabulary::add(const std::string& token, int64_t id) {
  PHX_CHECK(id >= 0 && id < kMaxSize, "the token ", token, " has the id ", id,
            ", which should be in 0..", kMaxSize - 1);
  if (id >= size()) {
    tokens_.resize(static_cast<size_t>(id) + 1);
    known_.resize(static_cast<size_t>(id) + 1);
  }
  ids_[token] = static_cast<int32_t>(id);
  tokens_[static_cast<size_t>(id)] = token;
  known_[static_cast<size_t>(id)] = true;
}

}  // namespace phx
