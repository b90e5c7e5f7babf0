#include "phalanx/cli/open_model.h"

#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"

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

OpenedModel open_model(const std::string& folder, std::optional<int64_t> step,
                       const Catalogue& catalogue) {
  if (is_hf_folder(folder)) {
    PHX_CHECK(!step, "--ckpt-step ", *step, ": ", folder,
              " is a Hugging Face folder, which has no iterations");
    const HfModel hf(folder);
    return {options_of(hf, folder), hf.tensors};
  }
  std::optional<int64_t> iteration = step;
  if (const auto found = step ? std::nullopt : checkpoint_to_load(folder)) {
    if (!found->warning.empty()) std::cerr << "warning: " << found->warning << "\n";
    iteration = found->iteration;
  }
  PHX_CHECK(iteration.has_value(), "--load ", folder,
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  auto checkpoint = std::make_shared<NativeCheckpoint>(find_checkpoint(folder, *iteration));
  OpenedModel opened{PretrainOptions::from_json(checkpoint->info("options"), catalogue),
                     checkpoint};
  // What import kept lies beside the checkpoints, also where they were moved.
  const Path tokenizer = opened.options.data.tokenizer_model;
  if (tokenizer.filename() == kept_companions("").filename() &&
      !std::filesystem::exists(tokenizer) &&
      std::filesystem::exists(kept_companions(folder) / "tokenizer.json"))
    opened.options.data.tokenizer_model = kept_companions(folder).string();
  return opened;
}

void check_kept_tokenizer(const std::string& load, const DataConfig& data,
                          const DataConfig& given) {
  const auto check = [&](const char* flag, const std::string& path, const std::string& from_flag) {
    const bool missing = !path.empty() && !std::filesystem::exists(path);
    PHX_CHECK(
        !from_flag.empty() || !missing, flag, " ", path, " is not there; the path is from ", load,
        ", the checkpoint of a run that had this tokenizer",
        Path(path).is_relative() ? ", and begins in the folder that the run was started in" : "",
        "\n  hint: ", flag, " PATH says where it is now");
  };
  if (data.tokenizer_type == "GPT2BPETokenizer") {
    check("--vocab-file", data.vocab_file, given.vocab_file);
    check("--merge-file", data.merge_file, given.merge_file);
  } else if (data.tokenizer_type != "ByteTokenizer" && data.tokenizer_type != "NullTokenizer") {
    check("--tokenizer-model", data.tokenizer_model, given.tokenizer_model);
  }
}

}  // namespace phx
