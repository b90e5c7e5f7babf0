#include "cli/generate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/one_file.h"
#include "cli/exit_codes.h"
#include "cli/parse_args.h"
#include "cli/pretrain_options.h"
#include "cli/train_main.h"
#include "data/byte_tokenizer.h"
#include "data/story_corpus.h"
#include "models/gpt/generate.h"
#include "train/session.h"

namespace phx {

namespace {

struct GenerateOptions {
  std::string load;
  int64_t step = 0;
  std::string prompt;
  int64_t samples = 1;
  int64_t tokens = 240;
  int64_t threads = 0;
  std::string device = "auto";
  bool check_stories = false;
  SamplingOptions sampling;
};

// The model of a checkpoint, with its weights, for `length` positions.
struct LoadedModel {
  LoadedModel(const SafetensorsFile& file, const PretrainOptions& options, Device device,
              int64_t length)
      : model(options.model),
        store(model, device,
              {.dtype = model_dtype(options.train.precision()),
               .gradients = false,
               .initialize = false}) {
    const std::vector<std::string> ignored = {"optimizer."};
    const FlatState weights{"", store.weights()};
    load_checkpoint(file, store, std::span(&weights, 1), ignored);
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

}  // namespace

int run_generate(std::span<const std::string> args) {
  GenerateOptions options;
  CLI::App app("Samples text from a checkpoint of a model of byte tokens.", "phalanx generate");
  app.footer(
      "example:\n  phalanx generate --load out/demo/checkpoints --prompt 'Once' --tokens 300 "
      "--temperature 0.7");
  app.add_option("--load", options.load, "folder of checkpoints")->required();
  app.add_option("--ckpt-step", options.step, "its iteration (default: the newest)");
  app.add_option("--prompt", options.prompt, "text to go on from");
  app.add_option("--samples", options.samples, "texts to make, each with the next seed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens a text has at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature,
                 "0 takes the likeliest token every time")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "only the k likeliest tokens; 0 is all")
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p,
                 "only the likeliest tokens up to this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "the same seed gives the same text")
      ->capture_default_str();
  app.add_option("--device", options.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--threads", options.threads, "CPU threads; 0 is one a core");
  app.add_flag("--check-stories", options.check_stories,
               "say how much of the text obeys the corpus's grammar");
  if (const auto code = parse_args(app, args)) return *code;

  std::optional<int64_t> iteration =
      options.step > 0 ? std::optional(options.step) : latest_checkpoint(options.load);
  PHX_CHECK(iteration.has_value(), "--load ", options.load,
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  const SafetensorsFile file(checkpoint_file(options.load, *iteration));
  PHX_CHECK(file.metadata().contains("options"), file.path().string(),
            " does not say which model it holds");
  const PretrainOptions trained =
      PretrainOptions::from_json(nlohmann::json::parse(file.metadata().at("options")));
  PHX_CHECK(trained.model.vocab_size == ByteTokenizer::kVocabSize, "the model has a vocabulary of ",
            trained.model.vocab_size.value_or(0), "; generate decodes byte tokens only (",
            ByteTokenizer::kVocabSize, ")");

  const int64_t length = 1 + int64_t(options.prompt.size()) + options.tokens;
  const bool bounded = trained.model.has_position_table();
  PHX_CHECK(!bounded || length <= trained.model.max_position_embeddings,
            "prompt and --tokens make ", length, " positions, but the model has ",
            trained.model.max_position_embeddings);
  TrainConfig run = trained.train;
  run.threads = options.threads;
  run.device = options.device == "cpu"    ? DeviceChoice::cpu
               : options.device == "cuda" ? DeviceChoice::cuda
                                          : DeviceChoice::automatic;
  Runtime runtime(runtime_options(run));
  LoadedModel loaded(file, trained, runtime.device(), length);
  print_text(options, loaded);
  return kExitDone;
}

}  // namespace phx
