#include "phalanx/cli/convert_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/write_checkpoint.h"
#include "phalanx/cli/convert_check.h"
#include "phalanx/cli/convert_megatron.h"
#include "phalanx/cli/convert_target.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/open_model.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/convert/hf_model.h"

namespace phx {
namespace {

enum class WeightType { as_is, fp32, bf16, fp16 };
constexpr auto option_names(WeightType) { return std::array{"as-is", "fp32", "bf16", "fp16"}; }

std::optional<DType> dtype_of(WeightType type) {
  switch (type) {
    case WeightType::as_is:
      return std::nullopt;
    case WeightType::fp32:
      return DType::f32;
    case WeightType::bf16:
      return DType::bf16;
    case WeightType::fp16:
      return DType::f16;
  }
  return std::nullopt;
}

struct ImportOptions {
  std::string hf, native;

  template <class Field>
  void each(Field&& field) {
    field("hf", hf, "the Hugging Face folder: config.json and safetensors", Required{});
    field("native", native, "folder of checkpoints to write to, as iter_0000000", Required{});
  }
};

struct ExportOptions {
  std::string native, hf, family, companions, max_shard_size = "5GB";
  std::optional<int64_t> step;
  WeightType dtype = WeightType::as_is;

  template <class Field>
  void each(Field&& field) {
    std::vector<std::string> names;
    for (const Family& known : families()) names.emplace_back(known.name);
    field("native", native, "folder of checkpoints", Required{});
    field("ckpt-step", step, "its iteration", NotNegative{}, DefaultIs{"the newest"});
    field("hf", hf, "the folder to write", Required{});
    field("family", family, "write it as this family", OneOf{names},
          DefaultIs{"the first that can say the model"});
    field("max-shard-size", max_shard_size, "of a file of weights, as in 5GB or 500MB");
    field("dtype", dtype, "type of the weights");
    field("companions", companions,
          "folder with the tokenizer and generation_config.json to put beside the weights",
          DefaultIs{"what import kept, or the folder of the run's tokenizer"});
  }
};

std::shared_ptr<const NativeCheckpoint> open_native(const Path& folder,
                                                    std::optional<int64_t> step) {
  const std::optional<int64_t> iteration = step ? step : latest_checkpoint(folder);
  PHX_CHECK(iteration.has_value(), "--native ", folder.string(),
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  return std::make_shared<NativeCheckpoint>(find_checkpoint(folder, *iteration));
}

// ---- import
// --------------------------------------------------------------------------------------

int run_import(std::span<const std::string> args) {
  ImportOptions options;
  OptionSet set;
  set.add("Import", options);
  const CommandHelp help = {"phalanx convert import --hf FOLDER --native DIR",
                            "Converts a Hugging Face folder to a native checkpoint. For Megatron's "
                            "checkpoints see\n`phalanx convert import --megatron DIR --help`.",
                            "phalanx convert import --hf Llama-3.2-1B --native checkpoints/llama"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;

  const HfModel hf(options.hf);
  hf.check_tied_head();
  for (const std::string& key : hf.config.unread)
    std::cout << "note: config.json says \"" << key << "\", which is not read\n";
  const Path native = options.native;
  check_holds_no_checkpoint("--native", native);
  keep_companions(hf.folder, native);
  write_checkpoint(
      native, /*iteration=*/0, *hf.tensors,
      {{"options", options_of(hf, std::filesystem::absolute(kept_companions(native))).to_json()}});
  std::cout << fmt::format("{}: {} tensors of a {} model are in {}\n", options.hf,
                           hf.tensors->tensors().size(), hf.config.family->name,
                           checkpoint_path(native, 0).string());
  return kExitDone;
}

// ---- export
// --------------------------------------------------------------------------------------

// The folder of the tokenizer that the run was given, if its files have the names of Hugging
// Face's; says what becomes of it.
std::optional<Path> tokenizer_folder(const DataConfig& data) {
  const std::string& given = data.tokenizer_model.empty() ? data.vocab_file : data.tokenizer_model;
  if (given.empty()) return std::nullopt;
  const Path path = std::filesystem::absolute(given);
  const bool is_folder = std::filesystem::is_directory(path);
  const Path folder = is_folder ? path : path.parent_path();
  std::string names;
  bool found = false;
  for (const Path& file : companion_files(folder)) {
    names += str_cat(names.empty() ? "" : ", ", file.filename().string());
    found |= is_folder || file.filename() == path.filename();
  }
  if (found) {
    std::cout << fmt::format("tokenizer: {} from {}, as the run had it\n", names, folder.string());
    return folder;
  }
  std::cout << fmt::format(
      "note: the run's tokenizer, {}, {}, so there is none beside the weights; --companions "
      "FOLDER takes one along\n",
      given,
      std::filesystem::exists(path) ? "has no file that Hugging Face would look for"
                                    : "is not there");
  return std::nullopt;
}

int run_export(std::span<const std::string> args, const Catalogue& catalogue) {
  ExportOptions options;
  OptionSet set;
  set.add("Export", options);
  const std::vector<Rule> rules = {
      {"--max-shard-size is a size", [](const OptionSet& o, Problems& problems) {
         const std::string text = o.text("max-shard-size");
         try {
           parse_size(text);
         } catch (const Error& error) {
           problems.push_back({ProblemKind::value, "--max-shard-size",
                               str_cat("--max-shard-size ", text, " ", error.what()), ""});
         }
       }}};
  const CommandHelp help = {
      "phalanx convert export --native DIR --hf FOLDER [flags]",
      "Converts the weights of a native checkpoint to a Hugging Face folder. For Megatron's format "
      "see\n`phalanx convert export --torch-dist DIR --help` (fsdp_dtensor too).",
      "phalanx convert export --native checkpoints/llama --hf out/llama --max-shard-size 2GB"};
  if (const auto exit_code = parse_args(set, rules, help, args)) return *exit_code;

  const auto checkpoint = open_native(options.native, options.step);
  const PretrainOptions trained =
      PretrainOptions::from_json(checkpoint->info("options"), catalogue);
  HfExport what{.model = trained.model,
                .family = options.family.empty() ? nullptr : find_family(options.family),
                .companions = {},
                .max_shard_bytes = parse_size(options.max_shard_size),
                .dtype = dtype_of(options.dtype)};
  if (!options.companions.empty())
    what.companions = options.companions;
  else if (std::filesystem::exists(kept_companions(options.native)))
    what.companions = kept_companions(options.native);
  else
    what.tokenizer = tokenizer_folder(trained.data);
  const Family& family = export_hf(options.hf, checkpoint, what);
  std::cout << fmt::format("{}: written to {} as {}\n", checkpoint->path().string(), options.hf,
                           family.architecture);
  return kExitDone;
}

}  // namespace

int run_convert(std::span<const std::string> args, const Catalogue& catalogue) {
  const char* usage =
      "usage: phalanx convert import|export|check [flags]\n\n"
      "  import   convert a Hugging Face folder (--hf) or a Megatron checkpoint (--megatron) to a\n"
      "           native checkpoint\n"
      "  export   convert a native checkpoint to a Hugging Face folder (--hf) or to a Megatron\n"
      "           checkpoint in torch_dist or fsdp_dtensor format (--torch-dist,\n"
      "           --fsdp-dtensor)\n"
      "  check    compare two of these tensor by tensor and by the logits of a prompt, also with\n"
      "           logits that another program computed\n\n"
      "`phalanx convert import --help` explains the flags of import, and so on.\n\n"
      "example:\n  phalanx convert import --hf Llama-3.2-1B --native checkpoints/llama\n";
  if (args.empty()) {
    std::cerr << usage;
    return kExitUsage;
  }
  const std::string& what = args[0];
  const auto has = [&](const char* flag) {
    return std::ranges::any_of(args, [&](const std::string& arg) {
      return arg == flag || arg.starts_with(str_cat(flag, "="));
    });
  };
  if (what == "import" && has("--megatron")) return run_import_megatron(args.subspan(1));
  if (what == "export" && (has("--torch-dist") || has("--fsdp-dtensor")))
    return run_export_megatron(args.subspan(1), catalogue);
  if (what == "import") return run_import(args.subspan(1));
  if (what == "export") return run_export(args.subspan(1), catalogue);
  if (what == "check") return run_check(args.subspan(1), catalogue);
  if (what == "--help" || what == "-h") {
    std::cout << usage;
    return kExitDone;
  }
  throw UsageError(str_cat("convert ", what, " is not known: it is import, export or check"));
}

}  // namespace phx
