// The rules of `phalanx pretrain` between fields of several rooms; those of one room are in it.
#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/text/byte_tokenizer.h"
#include "phalanx/train/batch_schedule.h"

namespace phx {
namespace {

void add(Problems& problems, const std::string& name, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, "--" + name, std::move(text), std::move(hint)});
}

// A run counts in iterations or in samples; schedules in the other unit would have no meaning.
void check_units(const OptionSet& options, Problems& problems) {
  const bool iters = options.active("train-iters"), samples = options.active("train-samples");
  if (iters == samples) return;  // reported already
  const std::string wrong = iters ? "samples" : "iters", right = iters ? "iters" : "samples";
  for (const char* stem : {"lr-decay-", "lr-warmup-", "lr-wsd-decay-"}) {
    const std::string name = stem + wrong;
    if (options.number(name).value_or(0) == 0) continue;
    add(problems, name,
        str_cat(shown(options, name), " does not go with ", shown(options, "train-" + right)),
        str_cat("use --", stem, right));
  }
}

void check_schedule_lengths(const OptionSet& options, Problems& problems) {
  for (const char* unit : {"iters", "samples"}) {
    const std::string train = str_cat("train-", unit);
    if (!options.active(train)) continue;
    const std::string decay = str_cat("lr-decay-", unit);
    const std::string horizon = options.active(decay) ? decay : train;
    const std::string warmup = str_cat("lr-warmup-", unit);
    const auto limit = options.number(horizon);
    if (!limit) continue;
    const double length = *limit, ramp = options.number(warmup).value_or(0);
    if (ramp >= length && ramp > 0) {
      add(problems, warmup,
          str_cat(shown(options, warmup), " leaves nothing of ", shown(options, horizon)),
          str_cat("warm-up has to be shorter; it is part of --", horizon));
    }
    const std::string anneal = str_cat("lr-wsd-decay-", unit);
    if (options.number(anneal).value_or(0) > length) {
      add(problems, anneal,
          str_cat(shown(options, anneal), " is more than ", shown(options, horizon)),
          str_cat("the final fall is part of --", horizon));
    }
  }
}

void check_recomputed_layers(const OptionSet& options, Problems& problems) {
  const auto recomputed = options.number("recompute-num-layers");
  const auto layers = options.number("num-layers");
  if (!recomputed || !layers || *recomputed <= *layers) return;
  add(problems, "recompute-num-layers",
      str_cat(shown(options, "recompute-num-layers"), " is more than ",
              shown(options, "num-layers")),
      str_cat("1 to ", *layers, " are possible"));
}

void check_offloaded_layers(const OptionSet& options, Problems& problems) {
  const auto offloaded = options.number("cpu-offloading-num-layers");
  const auto layers = options.number("num-layers");
  if (!offloaded || *offloaded == 0) return;
  if (layers && *offloaded > *layers)
    add(problems, "cpu-offloading-num-layers",
        str_cat(shown(options, "cpu-offloading-num-layers"), " is more than ",
                shown(options, "num-layers")),
        str_cat("1 to ", *layers, " are possible"));
  if (options.number("pipeline-model-parallel-size").value_or(1) > 1)
    add(problems, "cpu-offloading-num-layers",
        str_cat(shown(options, "cpu-offloading-num-layers"), " and ",
                shown(options, "pipeline-model-parallel-size"),
                " exclude each other: a pipeline's stages have several micro-batches under way"),
        "use --recompute-granularity in a pipeline");
}

void check_vocabulary(const OptionSet& options, Problems& problems) {
  const bool bytes = options.text("tokenizer-type") == "ByteTokenizer";
  if (bytes && options.number("vocab-size").value_or(ByteTokenizer::kVocabSize) <
                   ByteTokenizer::kVocabSize) {
    add(problems, "vocab-size",
        str_cat(shown(options, "vocab-size"), " is too small for --tokenizer-type ByteTokenizer, ",
                "which has ", ByteTokenizer::kVocabSize, " tokens"),
        "leave --vocab-size out");
  }
  if (bytes || options.active("vocab-size")) return;
  const bool tokenizer = options.active("tokenizer-model") || options.active("vocab-file");
  const std::string type = options.text("tokenizer-type");
  if (tokenizer && type != "NullTokenizer") return;
  add(problems, "vocab-size", "--vocab-size is required when no tokenizer tells it",
      "add --vocab-size, or --tokenizer-model, or --vocab-file and --merge-file");
}

void check_source(const OptionSet& options, Problems& problems) {
  for (const char* name : {"mock-data", "dataset", "token-file", "data-path", "data-args-path",
                           "train-data-path", "per-split-data-args-path"}) {
    if (options.active(name)) return;
  }
  add(problems, "data-path",
      "one of --data-path, --train-data-path, --token-file and --mock-data is required",
      "--mock-data trains on made-up tokens");
}

// Only what is cut by --split: data with a blend of its own for training is not.
void check_training_share(const OptionSet& options, Problems& problems) {
  if (options.active("skip-train") || options.active("train-data-path") ||
      options.active("per-split-data-args-path"))
    return;
  DataConfig data;
  data.split = options.text("split");
  try {
    if (data.split_shares()[0] > 0) return;
  } catch (const Error&) {
    return;  // told already
  }
  add(problems, "split", shown(options, "split") + " leaves nothing for training, its first share",
      "e.g. --split 969,30,1, or --skip-train to evaluate only");
}

// Counts of tokens are 64-bit integers all over the loop.
void check_tokens(const OptionSet& options, Problems& problems) {
  constexpr double kMost = 1152921504606846976.0;  // 2^60
  const auto iterations = options.number("train-iters"), samples = options.number("train-samples");
  const auto length = options.number("seq-length"), micro = options.number("micro-batch-size");
  if (!length || !micro || (!iterations && !samples)) return;
  double batch = options.number("global-batch-size").value_or(*micro);
  const auto sizes = options.text("step-batch-size-schedule");
  if (!sizes.empty() && BatchSchedule::problems(sizes, 1).empty())
    batch = double(BatchSchedule::parse(sizes, 1).largest());
  const double tokens = (iterations ? *iterations * batch : *samples) * *length;
  if (tokens < kMost) return;
  const std::string run = iterations ? "train-iters" : "train-samples";
  add(problems, run,
      str_cat(shown(options, run), " at ", shown(options, "seq-length"), " make about ", tokens,
              " tokens; a run has fewer than 2^60, about 1.2e18"),
      str_cat("up to ", static_cast<int64_t>(kMost / (tokens / *options.number(run))), " fit"));
}

// Samples are put in order by NumPy's generator.
void check_seed(const OptionSet& options, Problems& problems) {
  constexpr double kMost = 4294967295.0;
  if (options.active("token-file")) return;
  if (options.number("seed").value_or(0) <= kMost) return;
  add(problems, "seed",
      shown(options, "seed") + " is too large for NumPy's generator, which shuffles the samples",
      "0 to 4294967295 are possible");
}

void check_no_position(const OptionSet& options, Problems& problems) {
  if (!options.seen("no-position-embedding")) return;
  if (options.text("position-embedding-type") != "learned_absolute") return;
  add(problems, "no-position-embedding",
      "--no-position-embedding contradicts --position-embedding-type learned_absolute",
      "use --position-embedding-type rope or none");
}

void check_loss_average(const OptionSet& options, Problems& problems) {
  if (!options.seen("calculate-per-token-loss")) return;
  if (options.text("loss-average") != "micro-batch") return;
  add(problems, "loss-average",
      "--loss-average micro-batch contradicts --calculate-per-token-loss, the average over tokens",
      "leave one of them out");
}

std::vector<Rule> cross_rules() {
  return {
      {"schedules have the unit of the run: iterations with --train-iters, samples with "
       "--train-samples",
       check_units},
      {"warm-up and WSD's final fall are shorter than the decay they are part of",
       check_schedule_lengths},
      {"--recompute-num-layers is at most --num-layers", check_recomputed_layers},
      {"--cpu-offloading-num-layers is at most --num-layers, and needs one pipeline stage",
       check_offloaded_layers},
      {"--vocab-size is given where no tokenizer tells it", check_vocabulary},
      {"tokens have a source: --data-path, --train-data-path, --token-file or --mock-data",
       check_source},
      {"--split leaves a share for training, unless --skip-train is given", check_training_share},
      {"a run has fewer than 2^60 tokens", check_tokens},
      {"--seed is at most 4294967295, except with --token-file", check_seed},
      {"--no-position-embedding does not go with learned positions", check_no_position},
      {"--loss-average micro-batch does not go with --calculate-per-token-loss",
       check_loss_average},
  };
}

}  // namespace

std::vector<Rule> pretrain_rules(const PretrainOptions& options) {
  std::vector<Rule> rules;
  for (const std::vector<Rule>& part :
       {transformer_rules(options.model), parallel_rules(), train_rules(), optimizer_rules(),
        data_rules(), sft_rules(), cross_rules()}) {
    rules.insert(rules.end(), part.begin(), part.end());
  }
  return rules;
}

}  // namespace phx
