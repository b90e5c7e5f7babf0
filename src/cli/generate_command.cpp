#include "cli/generate_command.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/loader.h"
#include "checkpoint/native_checkpoint.h"
#include "cli/exit_codes.h"
#include "cli/parse_args.h"
#include "cli/pretrain_options.h"
#include "cli/train_main.h"
#include "cli/usage_error.h"
#include "data/byte_tokenizer.h"
#include "data/story_corpus.h"
#include "models/gpt/generate.h"
#include "train/session.h"

namespace phx {

namespace {

struct GenerateOptions {
  std::string load;
  std::optional<int64_t> step;
  std::string prompt;
  int64_t samples = 1;
  int64_t tokens = 240;
  SamplingOptions sampling;
  int64_t seed = static_cast<int64_t>(SamplingOptions{}.seed);
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;
  bool check_stories = false;

  template <class Field>
  void each(Field&& field) {
    field("load", load, "folder of checkpoints", Required{});
    field("ckpt-step", step, "its iteration", Positive{}, DefaultIs{"the newest"});
    field("prompt", prompt, "text to go on from");
    field("samples", samples, "texts to make, each with the next seed", InRange{1, 1 << 20});
    field("tokens", tokens, "tokens a text has at most", InRange{1, 1 << 24});
    field("temperature", sampling.temperature, "0 takes the likeliest token every time",
          NotNegative{});
    field("top-k", sampling.top_k, "only the k likeliest tokens; 0 is all", NotNegative{});
    field("top-p", sampling.top_p, "only the likeliest tokens up to this probability",
          InRange{0, 1});
    field("seed", seed, "the same seed gives the same text", NotNegative{});
    field("device", device, "where to compute; auto takes a GPU when there is one");
    field("threads", threads, "CPU threads; 0 is one a core", InRange{0, 4096});
    field("check-stories", check_stories, "say how much of the text obeys the corpus's grammar");
  }
};

// The model of a checkpoint, with its weights, for `length` positions.
struct LoadedModel {
  LoadedModel(const TensorSource& source, const PretrainOptions& options, Device device,
              int64_t length)
      : model(options.model),
        store(model, device,
              {.dtype = model_dtype(options.train.precision()),
               .gradients = false,
               .initialize = false}) {
    const FlatState weights{"", store.weights()};
    load_parameters(source, store, {&weights, 1}, {.ignored = {"optimizer."}, .convert = true});
    model.prepare(device, store.weights().dtype(), length, /*micro_batch=*/1);
  }
  GptModel model;
  ParameterStore store;
};

void print_check(const std::string& text) {
  const StoryCheck check = check_story_text(text);
  std::cout << fmt::format("\n{} of {} sentences obey the grammar, {} of {} sums are right\n",
                           check.grammatical, check.sentences, check.right_sums, check.sums);
}

void print_text(const GenerateOptions& options, LoadedModel& loaded) {
  // Documents of the training text begin after an end-of-document token.
  std::vector<int32_t> prompt = {ByteTokenizer::kEod};
  for (int32_t token : ByteTokenizer::encode(options.prompt)) prompt.push_back(token);
  std::string all;
  SamplingOptions sampling = options.sampling;
  sampling.seed = static_cast<uint64_t>(options.seed);
  for (int64_t i = 0; i < options.samples; ++i, ++sampling.seed) {
    std::cout << options.prompt << std::flush;
    all += options.prompt;
    generate(loaded.model, prompt, options.tokens, sampling, [&](int32_t token) {
      if (token == ByteTokenizer::kEod) return true;
      const std::string piece = ByteTokenizer::decode(std::span(&token, 1));
      all += piece;
      std::cout << piece << std::flush;
      return false;
    });
    std::cout << "\n";
    all += "\n";
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

int run_generate(std::span<const std::string> args) {
  GenerateOptions options;
  OptionSet set;
  set.add("Generate", options);
  const CommandHelp help = {"phalanx generate --load FOLDER [flags]",
                            "Samples text from a checkpoint of a model of byte tokens.",
                            "phalanx generate --load out/demo/checkpoints --prompt 'Once' "
                            "--tokens 300 --temperature 0.7"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;

  const std::optional<int64_t> iteration =
      options.step ? options.step : latest_checkpoint(options.load);
  PHX_CHECK(iteration.has_value(), "--load ", options.load,
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  const NativeCheckpoint checkpoint(find_checkpoint(options.load, *iteration));
  const PretrainOptions trained =
      PretrainOptions::from_json(nlohmann::json::parse(checkpoint.info("options")));
  PHX_CHECK(trained.model.vocab_size == ByteTokenizer::kVocabSize, "the model has a vocabulary of ",
            trained.model.vocab_size.value_or(0), "; generate decodes byte tokens only (",
            ByteTokenizer::kVocabSize, ")");

  const int64_t length = 1 + int64_t(options.prompt.size()) + options.tokens;
  check_positions(trained.model, options, length);
  TrainConfig run = trained.train;
  run.threads = options.threads;
  run.device = options.device;
  Runtime runtime(runtime_options(run));
  LoadedModel loaded(checkpoint, trained, runtime.device(), length);
  print_text(options, loaded);
  return kExitDone;
}

}  // namespace phx
