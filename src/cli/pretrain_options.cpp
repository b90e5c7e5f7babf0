#include "phalanx/cli/pretrain_options.h"

#include <algorithm>
#include <array>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/cli/megatron_catalogue.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/text/byte_tokenizer.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/train/batch_schedule.h"
#include "phalanx/train/layout.h"
#include "phalanx/train/run_state.h"

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
  if (options.active("mock-data") || options.active("token-file")) return;
  if (options.number("seed").value_or(0) <= kMost) return;
  add(problems, "seed",
      shown(options, "seed") + " is more than NumPy takes, whose generator orders the samples",
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
      {"--seed is at most 4294967295 where --data-path or chats are read", check_seed},
      {"--no-position-embedding does not go with learned positions", check_no_position},
      {"--loss-average micro-batch does not go with --calculate-per-token-loss",
       check_loss_average},
  };
}

// Megatron's recipes carry it along to one tensor-parallel rank, where Megatron switches it off
// too.
void drop_sequence_parallel(ParallelConfig& ranks, ParseReport& report) {
  if (!ranks.sequence_parallel || ranks.tensor_model_parallel_size != 1) return;
  ranks.sequence_parallel = false;
  report.implied.emplace_back("--sequence-parallel",
                              "it is switched off at TP 1: there is one rank to hold the sequence");
}

void note_idle_ranks(const OptionSet& options, const ParallelConfig& ranks, ParseReport& report) {
  const auto idle = [&](const char* name, bool idles, const char* why) {
    if (idles && options.at(name).given) report.implied.emplace_back(str_cat("--", name), why);
  };
  const bool one_stage = ranks.pipeline_model_parallel_size == 1;
  const bool one_chunk = !ranks.num_layers_per_virtual_pipeline_stage &&
                         !ranks.num_virtual_stages_per_pipeline_rank &&
                         ranks.pipeline_model_parallel_layout.empty();
  const char* pipeline = "there is no pipeline at PP 1";
  idle("pipeline-schedule", one_stage, pipeline);
  idle("account-for-embedding-in-pipeline-split", one_stage, pipeline);
  idle("account-for-loss-in-pipeline-split", one_stage, pipeline);
  idle("microbatch-group-size-per-virtual-pipeline-stage", one_stage || one_chunk,
       "a pipeline rank has one chunk of layers");
  idle("ddp-bucket-size", !ranks.overlap_grad_reduce,
       "without --overlap-grad-reduce gradients are one bucket");
  idle("tp-comm-overlap", ranks.tensor_model_parallel_size == 1, "there is no exchange at TP 1");
}

// Flags that are sound but idle in this run: Megatron's recipes carry them along.
void note_idle(const OptionSet& options, const PretrainOptions& values, ParseReport& report) {
  if (!values.train.fp16) {
    for (const char* name : {"loss-scale", "initial-loss-scale", "min-loss-scale",
                             "loss-scale-window", "hysteresis"}) {
      if (options.at(name).given) {
        report.implied.emplace_back(str_cat("--", name), "only fp16 scales its loss");
      }
    }
  }
  const auto idle_with = [&](const char* rule, std::initializer_list<const char*> names) {
    if (values.optim.optimizer != rule) return;
    for (const char* name : names)
      if (options.at(name).given)
        report.implied.emplace_back(str_cat("--", name),
                                    str_cat("--optimizer ", rule, " does not have it"));
  };
  idle_with("adam", {"sgd-momentum"});
  idle_with("sgd", {"adam-beta1", "adam-beta2", "adam-eps"});
}

// What the options of the model come from beside the flags.
struct TakenOptions {
  std::optional<Path> hf;  // the Hugging Face folder to load
  bool over_flags = false;
  nlohmann::json values = nlohmann::json::object();
};

// --use-checkpoint-args, or a Hugging Face folder: what the checkpoint says of the model and its
// tokenizer, for the flags to win over. Only where --load and the checkpoint can be read; the run
// says what is wrong otherwise.
TakenOptions take_checkpoint_args(std::span<const std::string> args, OptionSet& set,
                                  const Catalogue& catalogue, ParseReport& report) {
  PretrainOptions given(catalogue);
  pretrain_option_set(given).parse(args);
  TakenOptions taken;
  for (const std::string& folder : {given.train.load, given.train.pretrained_checkpoint})
    if (!taken.hf && !folder.empty() && is_hf_folder(folder)) taken.hf = folder;
  const bool told = given.train.use_checkpoint_args && !given.train.load.empty();
  if (!told && !taken.hf) return taken;
  taken.over_flags = told && taken.hf;
  nlohmann::json kept;
  try {
    kept =
        parse_json(checkpoint_options(taken.hf.value_or(given.train.load), given.train.ckpt_step));
  } catch (const std::exception& error) {
    const std::string flag = told ? "use-checkpoint-args" : "load";
    add(report.problems, flag, str_cat("--", flag, ": ", error.what()),
        taken.hf ? "" : "check --load and --ckpt-step, or give the options of the model as flags");
    return taken;
  }
  PretrainOptions names;
  OptionSet model;
  model.add("Model", names.choice);
  model.add("Model", names.model);
  OwnOptions own;
  if (const auto* entry = find_entry(catalogue.models, kept.value("model", names.choice.model)))
    own = entry->options;
  own.add_to(model, "Model");
  nlohmann::json& values = taken.values;
  const nlohmann::json fields = model.json();
  for (const auto& [key, unused] : fields.items())
    if (kept.contains(key)) values[key] = kept[key];
  for (const char* key : {"tokenizer_type", "tokenizer_model", "vocab_file", "merge_file"})
    if (kept.contains(key)) values[key] = kept[key];
  // Padding is made anew for this run's ranks where the vocabulary is known without it.
  if (!values.value("vocab_size", nlohmann::json()).is_null()) values.erase("padded_vocab_size");
  set.load_json(values, report);
  return taken;
}

// Flags that contradict the config.json of the folder that weights are loaded from.
void check_against_hf(const Path& folder, const TransformerConfig& model, ParseReport& report) {
  for (const std::string& difference : function_differences(model, read_hf_config(folder).model))
    add(report.problems, "load", str_cat(difference, " in ", (folder / "config.json").string()),
        "leave the flag out, or add --use-checkpoint-args to take the folder's value");
}

void check_hf_export(const TransformerConfig& model, ParseReport& report) {
  try {
    family_for(model);
  } catch (const Error& error) {
    add(report.problems, "save-hf-interval", str_cat("--save-hf-interval: ", error.what()),
        "leave it out");
  }
}

// The tokenizer says how many tokens there are. Where it cannot be read, recipes are checked all
// the same (cli/not_in_this_build.h refuses the run); chats are tokenized by the run itself.
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

// No problem was found in the options of a group.
bool is_sound(const OptionSet& set, const std::string& group, const ParseReport& report) {
  return std::ranges::none_of(report.problems, [&](const Problem& problem) {
    const Option* option = problem.flag.empty() ? nullptr : set.find(problem.flag.substr(2));
    return option != nullptr && option->group == group;
  });
}

// As in Megatron's pretrain_gpt.py: its two files need no --tokenizer-type.
void take_default_tokenizer(const OptionSet& set, DataConfig& data) {
  if (set.at("tokenizer-type").failed || !data.tokenizer_type.empty()) return;
  if (!data.vocab_file.empty() && !data.merge_file.empty())
    data.tokenizer_type = "GPT2BPETokenizer";
}

void add_layout_problems(const OptionSet& set, int64_t world, ParseResult& result) {
  Problems& problems = result.report.problems;
  const auto told = [&](const auto& member, const std::string& value) {
    return std::ranges::find(problems, value, member) != problems.end();
  };
  // Which of the ways to cut the layers counts is open where several were given.
  const bool many_ways = std::ranges::any_of(
      std::array{"--num-layers-per-virtual-pipeline-stage",
                 "--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout"},
      [&](const char* flag) { return told(&Problem::flag, flag); });
  const auto known = [&](const char* name) {
    if (many_ways && std::string(name) == "pipeline-model-parallel-layout") return false;
    const Option& option = set.at(name);
    return !option.failed && (option.given || !option.required);
  };
  const PretrainOptions& options = result.options;
  for (Problem& problem : layout_problems(
           {options.model, options.parallel, options.train, options.catalogue.pipeline_schedules},
           world, known))
    if (!told(&Problem::text, problem.text)) problems.push_back(std::move(problem));
}

void check_profile_ranks(const OptionSet& set, const TrainConfig& train, int64_t world,
                         ParseReport& report) {
  if (!train.profile) return;
  for (const int64_t rank : train.profile_ranks)
    if (rank >= world)
      add(report.problems, "profile-ranks",
          str_cat(shown(set, "profile-ranks"), ": there is no rank ", rank, " among ", world,
                  ", counted from 0"),
          str_cat("0 to ", world - 1, " are possible"));
}

// Names that the catalogue does not have. Those of the other lists are the flags' only choices; of
// these two a program may have none, or the names are worth a sentence.
void check_names(const PretrainOptions& options, ParseReport& report) {
  const auto check = [&](const char* flag, const auto& entries, const std::string& name) {
    if (name.empty() || find_entry(entries, name) != nullptr) return;
    add(report.problems, flag,
        str_cat("--", flag, " ", name, " is not in the catalogue of this program"),
        "it has " + entries_text(entries));
  };
  check("model", options.catalogue.models, options.choice.model);
  check("dataset", options.catalogue.datasets, options.data.dataset);
}

}  // namespace

OptionSet pretrain_option_set(PretrainOptions& options) {
  OptionSet set;
  set.add("Model", options.choice);
  set.add("Model", options.model);
  set.add("Ranks", options.parallel);
  set.add("Run", options.train);
  set.add("Optimizer", options.optim);
  set.add("Data", options.data);
  set.add("Chats", options.sft);
  set.add(megatron_catalogue());
  options.catalogue.each_list([&](const std::string& flag, auto& entries) {
    if (flag != "model" && flag != "dataset") set.set_choices(flag, entry_names(entries));
    for (auto& entry : entries)
      entry.options.add_to(set, str_cat("With --", flag, " ", entry.name));
  });
  return set;
}

std::vector<Rule> pretrain_rules() {
  std::vector<Rule> rules;
  for (const std::vector<Rule>& part :
       {transformer_rules(), parallel_rules(), train_rules(), optimizer_rules(), data_rules(),
        sft_rules(), cross_rules()}) {
    rules.insert(rules.end(), part.begin(), part.end());
  }
  return rules;
}

ParseResult parse_pretrain(std::span<const std::string> args, std::optional<int64_t> world,
                           RanksFrom ranks_from, const Catalogue& catalogue) {
  ParseResult result{.options = PretrainOptions(catalogue), .report = {}};
  OptionSet set = pretrain_option_set(result.options);
  ParseReport before;
  const TakenOptions taken = take_checkpoint_args(args, set, catalogue, before);
  result.report = set.parse(args);
  if (result.report.help) return result;
  result.report.problems.insert(result.report.problems.begin(), before.problems.begin(),
                                before.problems.end());
  if (taken.over_flags) set.load_json(taken.values, result.report);
  set.check(pretrain_rules(), result.report);
  check_names(result.options, result.report);
  drop_sequence_parallel(result.options.parallel, result.report);
  take_default_tokenizer(set, result.options.data);
  note_idle(set, result.options, result.report);
  note_idle_ranks(set, result.options.parallel, result.report);
  const int64_t ranks = world.value_or(
      result.options.parallel.local_ranks.value_or(model_ranks(result.options.parallel)));
  result.world = ranks;
  if (world && ranks_from == RanksFrom::launcher && result.options.parallel.local_ranks)
    add(result.report.problems, "local-ranks",
        str_cat(shown(set, "local-ranks"), " is for ranks in one process, but a launcher started ",
                *world, " processes"),
        "leave it out");
  // Later stages tell what they find beside the problems of earlier ones: a user sees all at once.
  const bool model_is_sound = is_sound(set, "Model", result.report);
  add_layout_problems(set, ranks, result);
  if (ranks_from == RanksFrom::launcher)
    check_profile_ranks(set, result.options.train, ranks, result.report);
  take_vocabulary(result);
  if (model_is_sound) {
    TransformerConfig model = result.options.model;
    model.resolve(result.options.parallel.tensor_model_parallel_size);
    if (taken.hf) check_against_hf(*taken.hf, model, result.report);
    if (result.options.train.save_hf_interval) check_hf_export(model, result.report);
    if (result.report.ok()) {
      result.options.model = model;
      result.options.train.resolve(data_parallel_size(result.options.parallel, ranks));
    }
  }
  return result;
}

std::string PretrainOptions::to_json(int indent) const {
  PretrainOptions copy = *this;
  return json_text(pretrain_option_set(copy).json(), indent);
}

PretrainOptions PretrainOptions::from_json(const std::string& text, const Catalogue& catalogue) {
  PretrainOptions options(catalogue);
  ParseReport report;
  nlohmann::json values = parse_json(text);
  // Before there was a choice GELU was always exact.
  if (!values.contains("bias_gelu_fusion")) values["bias_gelu_fusion"] = false;
  pretrain_option_set(options).load_json(values, report);
  PHX_CHECK(report.ok(), "options kept with a run cannot be read:\n",
            format_problems(report.problems));
  return options;
}

std::string PretrainOptions::table() const {
  PretrainOptions copy = *this;
  return pretrain_option_set(copy).table();
}

std::string pretrain_help(const Catalogue& catalogue) {
  PretrainOptions defaults(catalogue);
  return pretrain_option_set(defaults).help(
      "phalanx pretrain [--config FILE] [flags]",
      "  phalanx pretrain --num-layers 4 --hidden-size 256 --num-attention-heads 4 \\\n"
      "    --seq-length 256 --max-position-embeddings 256 --position-embedding-type rope \\\n"
      "    --normalization RMSNorm --swiglu --disable-bias-linear --vocab-size 512 --mock-data \\\n"
      "    --micro-batch-size 4 --global-batch-size 16 --train-iters 200 --lr 3e-4 --log-interval "
      "10\n"
      "\n"
      "  phalanx pretrain --config recipe.yaml --lr 1e-4 --check-args");
}

}  // namespace phx
