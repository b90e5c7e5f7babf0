// A trained model to look at or sample from: a folder of native checkpoints, or a Hugging Face
// folder.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/convert/hf_model.h"

namespace phx {

struct OpenedModel {
  PretrainOptions options;  // of the run that made it, as far as they are known
  std::shared_ptr<const TensorSource> tensors;
};

// `step`: the iteration, of native checkpoints; none: the newest.
OpenedModel open_model(const std::string& folder, std::optional<int64_t> step,
                       const Catalogue& catalogue = standard_catalogue());

// The options of a run of this model, as far as the folder tells them; `tokenizer`: where its files
// are.
PretrainOptions options_of(const HfModel& hf, const Path& tokenizer);

// An error if files of `data`'s tokenizer are missing whose paths come from the checkpoints in
// `load`: the reader never typed them, and may be in another folder. `given` is what flags say.
void check_kept_tokenizer(const std::string& load, const DataConfig& data, const DataConfig& given);

}  // namespace phx
