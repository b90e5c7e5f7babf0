// The samples that --sft trains on.
#pragma once

#include <array>
#include <memory>

#include "phalanx/data/chat/sft_config.h"
#include "phalanx/data/chat/sft_dataset.h"
#include "phalanx/data/data_config.h"

namespace phx {

// Training, validation and test: by --split from --data-path, or from files of their own; null
// where there is no such part. `options` says what the run wants; packing and the like come from
// `sft`. An Error names what is wrong with the flags, the template or a line of the data.
std::array<std::shared_ptr<const SftDataset>, 3> make_sft_datasets(const SftConfig& sft,
                                                                   const DataConfig& data,
                                                                   const Tokenizer& tokenizer,
                                                                   SftOptions options);

}  // namespace phx
