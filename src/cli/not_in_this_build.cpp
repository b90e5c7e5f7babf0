#include "cli/not_in_this_build.h"

#include "base/error.h"

namespace phx {

Problems not_in_this_build(const PretrainOptions& options) {
  Problems problems;
  const auto lack = [&](bool given, const char* flag, const char* reason, const char* hint) {
    if (given) problems.push_back({ProblemKind::refused, flag, reason, hint});
  };
  const PretrainOptions defaults;
  const DataConfig& data = options.data;

  const char* files = "Megatron's .bin/.idx files are not read yet";
  const char* sources = "use --token-file or --mock-data";
  lack(!data.data_path.empty(), "--data-path", files, sources);
  lack(!data.train_data_path.empty(), "--train-data-path", files, sources);
  lack(!data.valid_data_path.empty(), "--valid-data-path", files, sources);
  lack(!data.test_data_path.empty(), "--test-data-path", files, sources);
  lack(!data.data_cache_path.empty(), "--data-cache-path", files, sources);

  const char* tokenizer = "no tokenizer is read yet";
  const char* ids = "--token-file holds token ids, and --vocab-size says how many there are";
  const std::string& type = data.tokenizer_type;
  lack(!type.empty() && type != "ByteTokenizer" && type != "NullTokenizer", "--tokenizer-type",
       tokenizer, ids);
  lack(!data.tokenizer_model.empty(), "--tokenizer-model", tokenizer, ids);
  lack(!data.vocab_file.empty(), "--vocab-file", tokenizer, ids);
  lack(!data.merge_file.empty(), "--merge-file", tokenizer, ids);
  lack(!data.tiktoken_pattern.empty(), "--tiktoken-pattern", tokenizer, ids);
  lack(data.tiktoken_num_special_tokens != defaults.data.tiktoken_num_special_tokens,
       "--tiktoken-num-special-tokens", tokenizer, ids);

  const char* documents = "documents are not told apart within a sample yet";
  const char* leave = "leave it out";
  lack(data.reset_position_ids, "--reset-position-ids", documents, leave);
  lack(data.reset_attention_mask, "--reset-attention-mask", documents, leave);
  lack(data.eod_mask_loss, "--eod-mask-loss", documents, leave);
  lack(data.null_tokenizer_eod_id.has_value(), "--null-tokenizer-eod-id", documents, leave);
  lack(data.null_tokenizer_pad_id.has_value(), "--null-tokenizer-pad-id", documents, leave);

  lack(options.train.save_retain_interval.has_value(), "--save-retain-interval",
       "every checkpoint is kept so far", leave);
  const char* logs = "this is not logged yet";
  lack(options.train.log_params_norm, "--log-params-norm", logs, leave);
  lack(options.train.log_num_zeros_in_grad, "--log-num-zeros-in-grad", logs, leave);
  lack(options.optim.use_checkpoint_opt_param_scheduler, "--use-checkpoint-opt-param-scheduler",
       "on resume the given schedules always win so far",
       "leave it out, and give the schedules of the run that is resumed");
  return problems;
}

std::string format_notes(const Problems& problems) {
  if (problems.empty()) return "";
  std::string text = "note: this build cannot run these yet:\n";
  for (size_t i = 0; i < problems.size(); ++i) {
    const bool first = i == 0 || problems[i].text != problems[i - 1].text;
    const bool last = i + 1 == problems.size() || problems[i].text != problems[i + 1].text;
    text += (first ? "  " : ", ") + problems[i].flag;
    if (last) text += str_cat(": ", problems[i].text, "; ", problems[i].hint, "\n");
  }
  return text;
}

}  // namespace phx
