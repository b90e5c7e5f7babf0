#include "cli/open_model.h"

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/native_checkpoint.h"

namespace phx {

PretrainOptions options_of(const HfModel& hf, const Path& tokenizer) {
  PretrainOptions options;
  options.model = hf.config.model;
  options.model.resolve();
  options.train.micro_batch_size = 1;
  const DType dtype = hf.tensors->tensors().begin()->second.dtype;
  options.train.bf16 = dtype == DType::bf16;
  options.train.fp16 = dtype == DType::f16;
  if (std::filesystem::exists(tokenizer / "tokenizer.json")) {
    options.data.tokenizer_type = "HuggingFaceTokenizer";
    options.data.tokenizer_model = tokenizer.string();
  }
  return options;
}

OpenedModel open_model(const std::string& folder, std::optional<int64_t> step) {
  if (is_hf_folder(folder)) {
    PHX_CHECK(!step, "--ckpt-step ", *step, ": ", folder,
              " is a Hugging Face folder, which has no iterations");
    const HfModel hf(folder);
    return {options_of(hf, folder), hf.tensors};
  }
  const std::optional<int64_t> iteration = step ? step : latest_checkpoint(folder);
  PHX_CHECK(iteration.has_value(), "--load ", folder,
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  auto checkpoint = std::make_shared<NativeCheckpoint>(find_checkpoint(folder, *iteration));
  return {PretrainOptions::from_json(checkpoint->info("options")), checkpoint};
}

}  // namespace phx
