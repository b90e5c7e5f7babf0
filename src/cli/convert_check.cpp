#include "phalanx/cli/convert_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/open_model.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/cli/train_main.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/comm/process_environment.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/convert/logits.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/convert/renamed_source.h"
#include "phalanx/convert/widened_source.h"
#include "phalanx/convert/zero_biases.h"

namespace phx {
namespace {

struct CheckOptions {
  std::string hf, megatron, native, logits;
  std::optional<int64_t> step, vocab_size;
  std::vector<int64_t> prompt;
  std::optional<double> tolerance, kl_tolerance;
  DeviceChoice device = DeviceChoice::cpu;
  int64_t threads = 0;
  bool tensors_only = false;

  template <class Field>
  void each(Field&& field) {
    field("hf", hf, "the Hugging Face folder");
    field("megatron", megatron, "instead: Megatron's checkpoint, or a folder of them");
    field("native", native, "folder of checkpoints");
    field("ckpt-step", step, "iteration of the native checkpoint, or of Megatron's alone",
          NotNegative{}, DefaultIs{"the newest"});
    field("vocab-size", vocab_size, "of Megatron's: tokens without padding", Positive{},
          DefaultIs{"as the run's arguments say, else with padding"});
    field("prompt-ids", prompt, "token ids to compare the logits of", NotNegative{},
          DefaultIs{"32 ids spread over the vocabulary"});
    field("logits", logits,
          "safetensors file with tokens [1, s] and logits [1, s, v] that another program computed; "
          "with it one of the two models is enough");
    field("tolerance", tolerance,
          "largest relative error of a position's logits that passes: |difference| / |logits|",
          NotNegative{}, DefaultIs{"1.2e-6 a token, of at least 128"});
    field("kl-tolerance", kl_tolerance,
          "largest KL divergence of a position's probabilities that passes, in nats", NotNegative{},
          DefaultIs{"4.5 times the square of that"});
    field("tensors-only", tensors_only, "do not compute logits");
    field("device", device, "where to compute");
    field("threads", threads, "CPU threads; 0 means one per core", InRange{0, 4096});
  }
};

// What is compared with the native checkpoint.
struct Side {
  const char* name;
  TransformerConfig model;
  std::shared_ptr<const TensorSource> weights;
};

Side open_side(const CheckOptions& options) {
  if (!options.hf.empty()) {
    const HfModel hf(options.hf);
    return {"Hugging Face", hf.config.model, hf.tensors};
  }
  const auto step = options.native.empty() ? options.step : std::nullopt;
  const MegatronModel megatron(options.megatron, step, options.vocab_size.value_or(0),
                               MegatronParts::weights);
  PretrainOptions run = PretrainOptions::from_json(json_text(megatron.options()));
  run.model.resolve();
  return {"Megatron", run.model, megatron.weights};
}

Side open_native_side(const CheckOptions& options, const Catalogue& catalogue) {
  const auto iteration = options.step ? options.step : latest_checkpoint(options.native);
  PHX_CHECK(iteration.has_value(), "--native ", options.native,
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  const auto checkpoint =
      std::make_shared<NativeCheckpoint>(find_checkpoint(options.native, *iteration));
  return {"native", PretrainOptions::from_json(checkpoint->info("options"), catalogue).model,
          std::make_shared<RenamedSource>(checkpoint, [](const std::string& name) {
            return name.starts_with("optimizer.") || is_load_of_experts(name) ? std::nullopt
                                                                              : std::optional(name);
          })};
}

// A model without biases of experts is the same as one whose biases are zero.
void make_biases_alike(Side& a, Side& b) {
  if (a.model.moe.moe_router_enable_expert_bias == b.model.moe.moe_router_enable_expert_bias)
    return;
  for (Side* side : {&a, &b}) add_zero_biases(side->model, side->weights);
}

bool check_config(const Side& theirs, const TransformerConfig& native) {
  const std::vector<std::string> differences = function_differences(theirs.model, native);
  if (differences.empty()) std::cout << "config: the same function\n";
  for (const std::string& difference : differences)
    std::cout << "config differs (" << theirs.name << " and native): " << difference << "\n";
  return differences.empty();
}

bool same_types(const TensorSource& a, const TensorSource& b) {
  for (const auto& [name, info] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other != b.tensors().end() && other->second.dtype != info.dtype) return false;
  }
  return true;
}

// Numbers are compared: weights of another type are equal where rounding lost nothing.
bool check_weights(std::shared_ptr<const TensorSource> theirs,
                   std::shared_ptr<const TensorSource> native) {
  constexpr size_t kMost = 10;
  const size_t all = native->tensors().size();
  if (!same_types(*theirs, *native)) {
    std::cout << "types differ: numbers are compared in fp32\n";
    theirs = std::make_shared<WidenedSource>(theirs, DType::f32);
    native = std::make_shared<WidenedSource>(native, DType::f32);
  }
  std::vector<TensorDifference> found = differences(*theirs, *native);
  std::ranges::stable_sort(found, std::greater(), &TensorDifference::largest);
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, found[i].largest);
    if (i < kMost)
      std::cout << fmt::format("{} differs: {}, by up to {:.3g}\n", found[i].name, found[i].what,
                               found[i].largest);
  }
  if (found.size() > kMost) std::cout << fmt::format("and {} tensors more\n", found.size() - kMost);
  std::cout << fmt::format("tensors: {} of {} are equal, largest difference {:.3g}\n",
                           all - std::min(all, found.size()), all, largest);
  return found.empty();
}

struct Prompt {
  std::vector<int64_t> tokens;
  std::vector<double> logits;  // that another program computed; empty: none
  int64_t vocabulary = 0;      // their columns
};

template <class T>
std::vector<T> values_of(const SafetensorsFile& file, const std::string& name, const char* dtype) {
  const SafetensorsFile::Tensor& tensor = file.at(name);
  PHX_CHECK(tensor.dtype == dtype, file.path().string(), ": ", name, " should be ", dtype,
            ", but it is ", tensor.dtype);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

Prompt prompt_of(const CheckOptions& options, int64_t vocabulary) {
  Prompt prompt{.tokens = options.prompt, .logits = {}, .vocabulary = vocabulary};
  if (!options.logits.empty()) {
    if (!prompt.tokens.empty())
      throw UsageError("--prompt-ids and --logits, which has its own tokens, exclude each other");
    const SafetensorsFile file(options.logits);
    prompt.tokens = values_of<int64_t>(file, "tokens", "I64");
    const std::vector<float> logits = values_of<float>(file, "logits", "F32");
    prompt.logits.assign(logits.begin(), logits.end());
    prompt.vocabulary = int64_t(logits.size() / std::max<size_t>(1, prompt.tokens.size()));
    // Without padding, which the model may have.
    PHX_CHECK(prompt.logits.size() == prompt.tokens.size() * size_t(prompt.vocabulary) &&
                  prompt.vocabulary > 0 && prompt.vocabulary <= vocabulary,
              options.logits, " has ", prompt.logits.size(), " logits for ", prompt.tokens.size(),
              " tokens and a vocabulary of ", vocabulary);
  }
  // Steps by the golden section reach all parts of the vocabulary.
  for (int64_t i = 0; prompt.tokens.size() < 32 && options.prompt.empty() && options.logits.empty();
       ++i)
    prompt.tokens.push_back((i * 618'034 + 1) % vocabulary);
  return prompt;
}

// The first of each row.
std::vector<double> columns(const std::vector<double>& rows, int64_t width, int64_t wanted) {
  if (width == wanted) return rows;
  std::vector<double> result;
  for (size_t at = 0; at < rows.size(); at += size_t(width))
    result.insert(result.end(), rows.begin() + ptrdiff_t(at),
                  rows.begin() + ptrdiff_t(at) + wanted);
  return result;
}

// Logits of a prompt by each side's weights, beside each other and beside those of a file.
bool check_logits(const CheckOptions& options, const std::optional<Side>& theirs,
                  const std::optional<Side>& native) {
  const TransformerConfig& model = native ? native->model : theirs->model;
  const int64_t vocabulary = model.vocab_size.value_or(model.padded_vocab());
  const Prompt prompt = prompt_of(options, vocabulary);
  TrainConfig run;
  run.device = options.device;
  run.threads = options.threads;
  prepare_process({});
  Runtime runtime(runtime_options(run));
  const auto logits = [&](const Side& side) {
    return columns(
        logits_of(side.model, *side.weights, prompt.tokens, DType::f32, runtime.device()),
        vocabulary, prompt.vocabulary);
  };
  LogitsTolerance tolerance = LogitsTolerance::of(int64_t(prompt.tokens.size()));
  tolerance.relative = options.tolerance.value_or(tolerance.relative);
  tolerance.divergence = options.kl_tolerance.value_or(tolerance.divergence);
  bool good = true;
  const auto report = [&](const std::string& what, const std::vector<double>& a,
                          const std::vector<double>& b) {
    const LogitsDifference difference = compare_logits(a, b, prompt.vocabulary);
    good &= tolerance.allows(difference);
    std::cout << fmt::format(
        "logits of {} tokens, {}: KL {:.3g} (at most {:.3g}), relative error {:.3g} (at most "
        "{:.3g}), largest difference {:.3g}",
        prompt.tokens.size(), what, difference.divergence, tolerance.divergence,
        difference.relative, tolerance.relative, difference.largest);
    if (difference.largest > 0)
      std::cout << fmt::format(" at position {}, token {}", difference.position, difference.token);
    std::cout << "\n";
  };
  std::vector<double> first, ours;
  if (theirs) first = logits(*theirs);
  if (native) ours = logits(*native);
  if (theirs && native)
    report(str_cat(theirs->name, "'s weights against the native ones"), first, ours);
  if (prompt.logits.empty()) return good;
  if (native)
    report("the native weights against the file's logits", ours, prompt.logits);
  else
    report(str_cat(theirs->name, "'s weights against the file's logits"), first, prompt.logits);
  return good;
}

void check_usage(const CheckOptions& options) {
  const int given =
      int(!options.hf.empty()) + int(!options.megatron.empty()) + int(!options.native.empty());
  if (!options.hf.empty() && !options.megatron.empty())
    throw UsageError("--hf and --megatron exclude each other");
  if (given == 0 || (given == 1 && (options.logits.empty() || !options.hf.empty())))
    throw UsageError(
        "convert check needs two models: --native with --hf or --megatron; or --logits with "
        "--native or --megatron");
}

}  // namespace

int run_check(std::span<const std::string> args, const Catalogue& catalogue) {
  CheckOptions options;
  OptionSet set;
  set.add("Check", options);
  const CommandHelp help = {
      "phalanx convert check --hf FOLDER | --megatron DIR --native DIR [flags]",
      "Compares a Hugging Face folder or a checkpoint of Megatron's with a native checkpoint: the\n"
      "config, every tensor, and the logits of a prompt, in fp32. With --logits also with what\n"
      "another program computed. Exit code 1 when they differ.",
      "phalanx convert check --hf Llama-3.2-1B --native checkpoints/llama --prompt-ids 1 2 3"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  check_usage(options);

  std::optional<Side> theirs, native;
  if (!options.hf.empty() || !options.megatron.empty()) theirs = open_side(options);
  if (!options.native.empty()) native = open_native_side(options, catalogue);
  bool good = true, same_function = true;
  if (theirs && native) {
    make_biases_alike(*theirs, *native);
    same_function = check_config(*theirs, native->model);
    good = check_weights(theirs->weights, native->weights) && same_function;
  }
  if (!options.tensors_only && same_function) good &= check_logits(options, theirs, native);
  std::cout << (good ? "the two are the same model\n" : "the two differ\n");
  return good ? kExitDone : kExitFailed;
}

}  // namespace phx
