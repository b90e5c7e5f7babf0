// Five short documents as a pair of files, and the options of datasets over them.
#pragma once

#include <vector>

#include "phalanx/data/data_config.h"
#include "phalanx/data/gpt/datasets.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "support/temp_folder.h"

namespace phx {

// Documents of the lengths 5, 3, 7, 4, 6; token k of document d is 10 d + k, the last one 99.
inline constexpr int32_t kEod = 99;
inline void write_documents(const Path& prefix) {
  IndexedWriter writer(prefix, TokenCode::u16);
  const int32_t lengths[] = {5, 3, 7, 4, 6};
  for (int32_t d = 0; d < 5; ++d) {
    std::vector<int32_t> tokens;
    for (int32_t k = 0; k < lengths[d]; ++k) tokens.push_back(10 * d + k);
    tokens.back() = kEod;
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.commit();
}

struct FiveDocuments {
  FiveDocuments() {
    write_documents(folder / "pair");
    config.data_path = {(folder / "pair").string()};
    config.split = "1";
    request.sample = {.seq_length = 4, .eod = kEod};
    request.num_samples[0] = 12;
  }
  Sample sample(int64_t index) {
    Sample sample;
    make_dataset(config, request, Split::train)->sample(index, sample);
    return sample;
  }
  TempFolder folder;
  DataConfig config;
  DatasetRequest request;
};

}  // namespace phx
