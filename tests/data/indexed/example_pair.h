// A small pair of token files for tests.
#pragma once

#include <vector>

#include "phalanx/data/indexed/indexed_dataset.h"
#include "phalanx/data/indexed/indexed_writer.h"

namespace phx {

inline std::vector<int32_t> tokens_of(const IndexedDataset& pair, int64_t sequence) {
  std::vector<int32_t> tokens(size_t(pair.length(sequence)));
  pair.copy(sequence, 0, tokens);
  return tokens;
}

// Two documents: {1, 2, 3}, {4} and {5, 6}.
inline void write_example(const Path& prefix, TokenCode code = TokenCode::u16) {
  IndexedWriter writer(prefix, code);
  writer.add_sequence(std::vector<int32_t>{1, 2, 3});
  writer.add_sequence(std::vector<int32_t>{4});
  writer.end_document();
  writer.add_sequence(std::vector<int32_t>{5, 6});
  writer.end_document();
  writer.commit();
}

}  // namespace phx
