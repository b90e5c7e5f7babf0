// Documents in which some tokens have no loss, so that micro-batches count different numbers of
// them.
#pragma once

#include <vector>

#include "phalanx/data/indexed/indexed_writer.h"

namespace phx::testing {

constexpr int64_t kDocumentVocabulary = 61;

// Documents of 1 to 20 tokens; the last token of each is 60, the last of the vocabulary.
inline void write_documents(const Path& prefix) {
  IndexedWriter writer(prefix, TokenCode::u16);
  for (int32_t i = 0; i < 200; ++i) {
    std::vector<int32_t> tokens(size_t(1 + i * 13 % 20));
    for (size_t k = 0; k < tokens.size(); ++k) tokens[k] = int32_t((i * 31 + k * 7) % 60);
    tokens.back() = 60;
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.commit();
}

}  // namespace phx::testing
