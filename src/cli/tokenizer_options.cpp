#include "phalanx/cli/tokenizer_options.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer.h"

namespace phx {
namespace {

void add(Problems& problems, const std::string& name, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, "--" + name, std::move(text), std::move(hint)});
}

bool names_tokenizer(const DataConfig& data) {
  return !data.tokenizer_type.empty() || !data.tokenizer_model.empty() || !data.vocab_file.empty();
}

}  // namespace

void take_default_tokenizer(const OptionSet& set, DataConfig& data) {
  if (set.at("tokenizer-type").failed || !data.tokenizer_type.empty()) return;
  if (!data.vocab_file.empty() && !data.merge_file.empty()) {
    data.tokenizer_type = "GPT2BPETokenizer";
    return;
  }
  std::error_code code;
  if (!data.tokenizer_model.empty() && std::filesystem::exists(data.tokenizer_model, code))
    data.tokenizer_type = tokenizer_type_of(data);
}

void check_tokenizer_of_chats(const OptionSet& set, const PretrainOptions& options,
                              ParseReport& report) {
  const DataConfig& data = options.data;
  if (!options.sft.sft || data.mock_data || !data.dataset.empty()) return;
  if (set.at("tokenizer-type").failed || names_tokenizer(data)) return;
  add(report.problems, "tokenizer-type",
      "--tokenizer-type is missing: --sft reads chats, which are text",
      "--tokenizer-type HuggingFaceTokenizer --tokenizer-model FOLDER");
}

void take_vocabulary(ParseResult& result) {
  std::optional<int64_t>& size = result.options.model.vocab_size;
  if (result.options.data.tokenizer_type.empty()) return;
  // A size that was given is compared by the run. Where there is no run, it is done here.
  const bool runs = result.report.ok() && !result.options.train.check_args;
  if (size && runs) return;
  try {
    const int64_t tokens =
        make_tokenizer(result.options.data, result.options.model.vocab_size)->vocab_size();
    const bool told = std::ranges::find(result.report.problems, "--vocab-size", &Problem::flag) !=
                      result.report.problems.end();
    if (size && *size < tokens && !told)
      add(result.report.problems, "vocab-size",
          str_cat("--vocab-size ", *size, " is too small for the tokenizer's ", tokens, " tokens"),
          "leave --vocab-size out");
    if (size) return;
    size = tokens;
    const std::optional<int64_t> padded = result.options.model.padded_vocab_size;
    if (padded && *padded < *size)
      add(result.report.problems, "padded-vocab-size",
          str_cat("--padded-vocab-size ", *padded, " is less than the tokenizer's ", *size,
                  " tokens"),
          "leave --padded-vocab-size out, and it is computed");
  } catch (const Error& error) {
    if (!result.options.sft.sft || size) return;
    add(result.report.problems, "tokenizer-model", error.what(),
        "it says how many tokens there are");
  }
}

}  // namespace phx
