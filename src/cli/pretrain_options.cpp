#include "phalanx/cli/pretrain_options.h"

#include <algorithm>
#include <array>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/cli/idle_flags.h"
#include "phalanx/cli/megatron_catalogue.h"
#include "phalanx/cli/tokenizer_options.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/train/frozen_modules.h"
#include "phalanx/train/layout.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/older_checkpoints.h"
#include "phalanx/train/recompute_modules.h"
#include "phalanx/train/save_folder.h"
#include "phalanx/train/train_fields.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

void add(Problems& problems, const std::string& name, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, "--" + name, std::move(text), std::move(hint)});
}

// Without any of these a command line describes no model.
constexpr const char* kSizesOfAModel[] = {"num-layers", "hidden-size", "num-attention-heads"};

// What the options of the model come from beside the flags.
struct TakenOptions {
  std::optional<Path> hf;  // the Hugging Face folder to load
  bool over_flags = false;
  nlohmann::json values = nlohmann::json::object();
};

// --use-checkpoint-args, a Hugging Face folder, or any checkpoint where no flag says how large the
// model is: what the checkpoint says of the model and its tokenizer, for the flags to win over.
// Only where --load and the checkpoint can be read; the run says what is wrong otherwise.
TakenOptions take_checkpoint_args(std::span<const std::string> args, OptionSet& set,
                                  const Catalogue& catalogue, ParseReport& report) {
  PretrainOptions given(catalogue);
  OptionSet given_set = pretrain_option_set(given);
  given_set.parse(args);
  TakenOptions taken;
  for (const std::string& folder : {given.train.load, given.train.pretrained_checkpoint})
    if (!taken.hf && !folder.empty() && is_hf_folder(folder)) taken.hf = folder;
  const bool told = given.train.use_checkpoint_args && !given.train.load.empty();
  const bool unsaid =
      !given.train.load.empty() && std::ranges::none_of(kSizesOfAModel, [&](const char* name) {
        return given_set.at(name).given;
      });
  const bool there = unsaid && (is_megatron_folder(given.train.load, given.train.ckpt_step) ||
                                !checkpoints_in(given.train.load).empty());
  if (!told && !taken.hf && !there) return taken;
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
  const TransformerConfig theirs = read_hf_config(folder).model;
  std::vector<std::string> differences = function_differences(model, theirs);
  // Zeros are no bias, but the folder has others.
  if (theirs.moe.moe_router_enable_expert_bias && !model.moe.moe_router_enable_expert_bias)
    differences.emplace_back("--moe-router-enable-expert-bias: false and true");
  for (const std::string& difference : differences)
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

// What only the model can say: modules that no layer of it has, tokens ahead that it does not
// predict. It is built for that, without memory.
void check_whole_model(const PretrainOptions& options, const TransformerConfig& model,
                       ParseReport& report) {
  const ModelFamily* family = find_entry(options.catalogue.models, options.choice.model);
  if (family == nullptr || !model.vocab_size) return;  // told already
  try {
    for (const Problems& found :
         {recompute_problems(*family, model, options.train.recompute_modules),
          frozen_problems(*family, model, options.train.freeze_modules)})
      report.problems.insert(report.problems.end(), found.begin(), found.end());
    if (options.parallel.context_parallel_size > 1 && !(*family)(model)->takes_context_parallel())
      report.problems.push_back(needs_whole_sequences(options.parallel));
    if (model.mtp_num_layers > 0 && (*family)(model)->tokens_ahead() != model.mtp_num_layers)
      add(report.problems, "mtp-num-layers",
          str_cat("--mtp-num-layers ", model.mtp_num_layers, ": --model ", family->name,
                  " predicts the next token only"),
          "leave it out");
  } catch (const Error& error) {  // a family may refuse what its own options ask for
    add(report.problems, "model", error.what(), "");
  }
}

// No problem was found in the options of a group.
bool is_sound(const OptionSet& set, const std::string& group, const ParseReport& report) {
  return std::ranges::none_of(report.problems, [&](const Problem& problem) {
    const Option* option = problem.flag.empty() ? nullptr : set.find(problem.flag.substr(2));
    return option != nullptr && option->group == group;
  });
}

// The two averages differ where tokens are masked only, and Megatron's default is not ours.
std::string note_on_average(const OptionSet& set, const PretrainOptions& options) {
  const char* masks = options.sft.sft              ? "--sft"
                      : options.data.eod_mask_loss ? "--eod-mask-loss"
                                                   : nullptr;
  const bool stated = set.at("loss-average").given || set.seen("calculate-per-token-loss");
  if (masks == nullptr || stated) return "";
  return str_cat("note: ", masks,
                 " masks tokens, and the loss is the mean over all other tokens of the batch "
                 "(--calculate-per-token-loss); --loss-average micro-batch trains Megatron's "
                 "default, a mean of the micro-batches' means");
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
  set.check(pretrain_rules(result.options), result.report);
  check_names(result.options, result.report);
  drop_sequence_parallel(result.options.parallel, result.report);
  take_default_tokenizer(set, result.options.data);
  note_idle_flags(set, result.options, result.report);
  result.note = note_on_average(set, result.options);
  if (ranks_from == RanksFrom::launcher) {
    const std::string resumed = resume_from_save_folder(result.options.train);
    if (!resumed.empty()) result.note += (result.note.empty() ? "" : "\n") + resumed;
  }
  const int64_t ranks = world.value_or(
      result.options.parallel.local_ranks.value_or(fewest_ranks(result.options.parallel)));
  result.world = ranks;
  if (world && ranks_from == RanksFrom::launcher && result.options.parallel.local_ranks)
    add(result.report.problems, "local-ranks",
        str_cat(shown(set, "local-ranks"), " is for ranks in one process, but a launcher started ",
                *world, " processes"),
        "leave it out");
  // Later stages tell what they find beside the problems of earlier ones: a user sees all at once.
  const bool model_is_sound = is_sound(set, "Model", result.report);
  add_layout_problems(set, ranks, result);
  if (ranks_from == RanksFrom::launcher) {
    check_profile_ranks(set, result.options.train, ranks, result.report);
    check_tokenizer_of_chats(set, result.options, result.report);
  }
  take_vocabulary(result);
  if (model_is_sound) {
    TransformerConfig model = result.options.model;
    model.resolve(result.options.parallel.tensor_model_parallel_size);
    if (taken.hf) check_against_hf(*taken.hf, model, result.report);
    if (result.options.train.save_hf_interval) check_hf_export(model, result.report);
    check_whole_model(result.options, model, result.report);
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
  migrate_options(values);
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
