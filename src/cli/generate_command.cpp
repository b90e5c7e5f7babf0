#include "phalanx/cli/generate_command.h"

#include <fmt/format.h>

#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/open_model.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/train_main.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/comm/process_environment.h"
#include "phalanx/convert/loaded_model.h"
#include "phalanx/data/story_corpus.h"
#include "phalanx/models/generate.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/train/session.h"

namespace phx {

namespace {

struct GenerateOptions {
  std::string load;
  std::optional<int64_t> step;
  std::string prompt;
  DataConfig data;  // the fields of a tokenizer
  int64_t samples = 1;
  int64_t tokens = 240;
  SamplingOptions sampling;
  int64_t seed = static_cast<int64_t>(SamplingOptions{}.seed);
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;
  bool check_stories = false;

  template <class Field>
  void each(Field&& field) {
    field("load", load, "folder of checkpoints, or a Hugging Face folder", Required{});
    field("ckpt-step", step, "its iteration", Positive{}, DefaultIs{"the newest"});
    field("prompt", prompt, "text to continue");
    const DefaultIs kept{"the checkpoint's"};
    field("tokenizer-type", data.tokenizer_type, "kind of tokenizer, as of pretrain", kept);
    field("tokenizer-model", data.tokenizer_model, "file or folder of the tokenizer", kept);
    field("vocab-file", data.vocab_file, "vocabulary of GPT2BPETokenizer", kept);
    field("merge-file", data.merge_file, "merges of GPT2BPETokenizer", kept);
    field("samples", samples, "number of texts, each with the next seed", InRange{1, 1 << 20});
    field("tokens", tokens, "largest number of tokens per text", InRange{1, 1 << 24});
    field("temperature", sampling.temperature,
          "sampling temperature; 0 always takes the likeliest token", NotNegative{});
    field("top-k", sampling.top_k, "sample from the k likeliest tokens only; 0 means all",
          NotNegative{});
    field("top-p", sampling.top_p, "sample from the likeliest tokens up to this total probability",
          InRange{0, 1});
    field("seed", seed, "the same seed gives the same text", NotNegative{});
    field("device", device, "where to compute; auto takes a GPU when there is one");
    field("threads", threads, "CPU threads; 0 means one per core", InRange{0, 4096});
    field("check-stories", check_stories,
          "report how much of the text obeys the grammar of `phalanx corpus`");
  }
};

void print_check(const std::string& text) {
  const StoryCheck check = check_story_text(text);
  std::cout << fmt::format("\n{} of {} sentences obey the grammar, {} of {} sums are right\n",
                           check.grammatical, check.sentences, check.right_sums, check.sums);
}

// The checkpoint's tokenizer, where flags name no other.
DataConfig tokenizer_config(const PretrainOptions& trained, const DataConfig& given) {
  DataConfig data = trained.data;
  if (!given.tokenizer_type.empty()) data.tokenizer_type = given.tokenizer_type;
  if (!given.tokenizer_model.empty()) data.tokenizer_model = given.tokenizer_model;
  if (!given.vocab_file.empty()) data.vocab_file = given.vocab_file;
  if (!given.merge_file.empty()) data.merge_file = given.merge_file;
  return data;
}

std::unique_ptr<const Tokenizer> tokenizer_of(const PretrainOptions& trained,
                                              const GenerateOptions& options) {
  const DataConfig data = tokenizer_config(trained, options.data);
  constexpr const char* kHint =
      "\n  hint: --tokenizer-type HuggingFaceTokenizer --tokenizer-model FOLDER, or the like";
  PHX_CHECK(!data.tokenizer_type.empty(), "--load ", options.load,
            " does not say which tokenizer its text had", kHint);
  // It would take letters for ids of something else, and print ids.
  PHX_CHECK(data.tokenizer_type != "NullTokenizer",
            options.data.tokenizer_type.empty()
                ? str_cat("the run of --load ", options.load, " had NullTokenizer")
                : "--tokenizer-type NullTokenizer",
            ", which numbers tokens and knows no text: there is nothing to read or write with",
            kHint);
  check_kept_tokenizer(options.load, data, options.data);
  auto tokenizer = make_tokenizer(data, trained.model.vocab_size);
  const int64_t rows = trained.model.vocab_size.value_or(trained.model.padded_vocab());
  PHX_CHECK(tokenizer->vocab_size() <= rows, "the model has a vocabulary of ", rows, ", but ",
            tokenizer->description(), " has ", tokenizer->vocab_size());
  return tokenizer;
}

// A document begins as it did in training: after the token that ended the one before, or with what
// the tokenizer itself puts in front.
std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const std::string& type,
                                const std::string& text) {
  std::vector<int32_t> ids;
  if (type == "HuggingFaceTokenizer") {
    tokenizer.encode_with_special(text, ids);
  } else {
    if (tokenizer.eod()) ids.push_back(*tokenizer.eod());
    tokenizer.encode(text, ids);
  }
  for (const std::optional<int32_t> first : {tokenizer.bos(), tokenizer.eod(), tokenizer.eos()})
    if (ids.empty() && first) ids.push_back(*first);
  if (ids.empty())
    throw UsageError("the tokenizer has no token that a text could begin with; give a --prompt");
  return ids;
}

void print_text(const GenerateOptions& options, LoadedModel& loaded, const Tokenizer& tokenizer,
                std::span<const int32_t> prompt) {
  std::string all;
  SamplingOptions sampling = options.sampling;
  sampling.seed = static_cast<uint64_t>(options.seed);
  for (int64_t i = 0; i < options.samples; ++i, ++sampling.seed) {
    std::cout << options.prompt << std::flush;
    all += options.prompt;
    StreamDecoder decoder(tokenizer);
    const auto show = [&](const std::string& piece) {
      all += piece;
      std::cout << piece << std::flush;
    };
    generate(*loaded.model->generator(), prompt, options.tokens, sampling, [&](int32_t token) {
      if (token == tokenizer.eod() || token == tokenizer.eos()) return true;
      // Rows of the table beyond the tokenizer's last token are no text.
      if (token < tokenizer.vocab_size()) show(decoder.push(token));
      return false;
    });
    show(decoder.finish() + "\n");
  }
  if (options.check_stories) print_check(all);
}

// A table of learned positions ends somewhere; rotation does not.
void check_positions(const TransformerConfig& model, const GenerateOptions& options,
                     int64_t length) {
  const int64_t most = model.max_position_embeddings;
  if (!model.has_position_table() || length <= most) return;
  const int64_t fitting = options.tokens - (length - most);
  throw UsageError(str_cat(
      "--tokens ", options.tokens, " and a --prompt of ", options.prompt.size(), " bytes make ",
      length, " positions, but the model has ", most,
      "\n  hint: ", fitting > 0 ? str_cat("use --tokens ", fitting) : "use a shorter --prompt"));
}

}  // namespace

int run_generate(std::span<const std::string> args, const Catalogue& catalogue) {
  GenerateOptions options;
  OptionSet set;
  set.add("Generate", options);
  const CommandHelp help = {"phalanx generate --load FOLDER [flags]",
                            "Samples text from a checkpoint, or from a Hugging Face folder.",
                            "phalanx generate --load out/demo/checkpoints --prompt 'Once' "
                            "--tokens 300 --temperature 0.7"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;

  prepare_process({});
  const OpenedModel opened = open_model(options.load, options.step, catalogue);
  const PretrainOptions& trained = opened.options;
  const std::unique_ptr<const Tokenizer> tokenizer = tokenizer_of(trained, options);
  const std::string type = tokenizer_config(trained, options.data).tokenizer_type;
  const std::vector<int32_t> prompt = prompt_ids(*tokenizer, type, options.prompt);

  const int64_t length = int64_t(prompt.size()) + options.tokens;
  check_positions(trained.model, options, length);
  TrainConfig run = trained.train;
  run.threads = options.threads;
  run.device = options.device;
  Runtime runtime(runtime_options(run));
  LoadedModel loaded(trained.family()(trained.model), *opened.tensors,
                     model_dtype(trained.train.precision()), runtime.device(), length);
  PHX_CHECK(loaded.model->generator() != nullptr, "--model ", trained.choice.model,
            " cannot continue a text");
  print_text(options, loaded, *tokenizer, prompt);
  return kExitDone;
}

}  // namespace phx
