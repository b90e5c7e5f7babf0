#include "phalanx/cli/convert_megatron.h"

#include <fmt/format.h>

#include <iostream>

#include "phalanx/base/atomic_folder.h"
#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/torch/expert_sources.h"
#include "phalanx/checkpoint/torch/fsdp_dtensor_writer.h"
#include "phalanx/checkpoint/torch/joined_masters.h"
#include "phalanx/checkpoint/torch/torch_dist_writer.h"
#include "phalanx/checkpoint/write_checkpoint.h"
#include "phalanx/cli/convert_target.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/convert/widened_source.h"
#include "phalanx/train/megatron_state.h"

namespace phx {
namespace {

struct ImportOptions {
  std::string megatron, native;
  std::optional<int64_t> step, vocab_size;
  bool weights_only = false;

  template <class Field>
  void each(Field&& field) {
    field("megatron", megatron,
          "Megatron's checkpoint (torch_dist, torch or fsdp_dtensor), or a folder of them",
          Required{});
    field("ckpt-step", step, "its iteration", NotNegative{}, DefaultIs{"the newest"});
    field("native", native, "folder of checkpoints to write to", Required{});
    field("vocab-size", vocab_size, "tokens without padding, if the checkpoint does not say it",
          Positive{}, DefaultIs{"as the run's arguments say, else with padding"});
    field("weights-only", weights_only, "leave optimizer state behind");
  }
};

struct ExportOptions {
  std::string native, torch_dist, fsdp_dtensor;
  std::optional<int64_t> step, padded_vocab_size, expert_ranks;
  bool optimizer = false;

  template <class Field>
  void each(Field&& field) {
    field("native", native, "folder of checkpoints", Required{});
    field("ckpt-step", step, "its iteration", NotNegative{}, DefaultIs{"the newest"});
    field("torch-dist", torch_dist, "folder to write to: DIR/iter_%07d and the file that names it");
    field("fsdp-dtensor", fsdp_dtensor,
          "the same in the format of Megatron-FSDP (--ckpt-format fsdp_dtensor)");
    field("optimizer", optimizer,
          "write the optimizer's state too, from which Megatron goes on under any layout");
    field("padded-vocab-size", padded_vocab_size,
          "rows of embedding and output layer, those beyond the vocabulary zero", Positive{},
          DefaultIs{"as the run's options pad it"});
    field(
        "expert-model-parallel-size", expert_ranks,
        "ranks over which Megatron will cut the experts: it keeps optimizer state in another form "
        "if they are several",
        Positive{}, DefaultIs{"as in the run"});
  }
};

void check_format(const OptionSet& options, Problems& problems) {
  const bool torch_dist = !options.text("torch-dist").empty(),
             fsdp = !options.text("fsdp-dtensor").empty();
  if (torch_dist == fsdp)
    problems.push_back({ProblemKind::rule, "--torch-dist",
                        torch_dist ? "--torch-dist and --fsdp-dtensor exclude each other"
                                   : "neither --torch-dist nor --fsdp-dtensor says where to write",
                        "give one of them"});
}

// The options of a run of this model, as far as the checkpoint tells them.
PretrainOptions imported_options(const MegatronModel& megatron) {
  nlohmann::json values = megatron_run_options(megatron);
  if (!values.contains("micro_batch_size")) values["micro_batch_size"] = 1;
  PretrainOptions options = PretrainOptions::from_json(json_text(values));
  const auto& embedding = megatron.weights->tensors().find("embedding.word_embeddings.weight");
  PHX_CHECK(embedding != megatron.weights->tensors().end(), megatron.path.string(),
            " has no embedding.word_embeddings.weight: it is no language model's");
  options.train.bf16 = embedding->second.dtype == DType::bf16;
  options.train.fp16 = embedding->second.dtype == DType::f16;
  return options;
}

// Rows of the embedding that pad the vocabulary take part in Megatron's softmax, and not in ours.
void note_padding(const MegatronModel& megatron) {
  const auto args = parse_json(megatron.common_json).value("args", nlohmann::json());
  const auto padded = args.is_object() ? args.value("padded_vocab_size", nlohmann::json()) : args;
  const int64_t tokens =
      megatron.weights->tensors().at("embedding.word_embeddings.weight").shape[0];
  if (!padded.is_number_integer() || padded.get<int64_t>() <= tokens) return;
  std::cout << fmt::format(
      "note: the {} rows that pad the vocabulary of {} tokens are cut off; Megatron's loss counts "
      "them as tokens. --vocab-size {} keeps them, and with it the run goes on with Megatron's "
      "loss.\n",
      padded.get<int64_t>() - tokens, tokens, padded.get<int64_t>());
}

// Megatron ranks groups of experts by one rule, and has no flag for others.
void check_groups(const MoeConfig& moe, const Path& from) {
  if (!moe.moe_router_num_groups || !moe.moe_router_group_best ||
      moe.moe_router_num_groups == moe.moe_router_group_topk)
    return;
  const int64_t topk = moe.moe_router_topk, used = moe.moe_router_group_topk.value_or(1);
  PHX_CHECK(*moe.moe_router_group_best * used == topk, from.string(),
            " was trained with --moe-router-group-best ", *moe.moe_router_group_best,
            ", but Megatron ranks a group by --moe-router-topk ", topk,
            " / --moe-router-group-topk ", used, " scores: it would choose other experts");
}

// What Megatron will find, and the tensors that it is written from.
struct Export {
  const ExportOptions& options;
  std::shared_ptr<const NativeCheckpoint> checkpoint;
  PretrainOptions trained;
  int64_t iteration, rows;  // of the embedding, with padding
};

void write_as_torch_dist(const Export& out, const Path& folder) {
  const TransformerConfig& model = out.trained.model;
  const int64_t expert_ranks =
      model.moe.any()
          ? out.options.expert_ranks.value_or(out.trained.parallel.expert_model_parallel_size)
          : 1;
  const MegatronCommon common = megatron_common(out.checkpoint->manifest().info, out.rows,
                                                out.options.optimizer, expert_ranks);
  std::shared_ptr<const TensorSource> source = out.checkpoint;
  if (out.options.optimizer) source = std::make_shared<JoinedMasters>(source);
  if (model.moe.any()) source = std::make_shared<SplitExperts>(source, *model.moe.num_experts);
  write_torch_dist(*source, folder,
                   {.iteration = out.iteration,
                    .args = common.args,
                    .common = common.common,
                    .padded_vocab_size = out.rows,
                    .optimizer = out.options.optimizer,
                    .stack_layers = !model.moe.any() || !model.moe.moe_layer_freq ||
                                    model.moe.moe_layer_freq->every == 1});
}

void write_as_fsdp_dtensor(const Export& out, const Path& folder) {
  PHX_CHECK(!out.trained.model.moe.any(), out.checkpoint->path().string(),
            " has experts, which are written as torch_dist only\n  hint: --torch-dist DIR");
  PHX_CHECK(out.trained.model.mtp_num_layers == 0, out.checkpoint->path().string(),
            " has layers of multi-token prediction, which are written as torch_dist only\n"
            "  hint: --torch-dist DIR");
  PHX_CHECK(!out.options.optimizer || !out.trained.train.fp16, out.checkpoint->path().string(),
            " is of an fp16 run: where Megatron-FSDP keeps the loss scale is not known\n"
            "  hint: leave out --optimizer, or use --torch-dist");
  const MegatronCommon common = megatron_common(out.checkpoint->manifest().info, out.rows,
                                                out.options.optimizer, 1, "fsdp_dtensor");
  std::shared_ptr<const TensorSource> source;
  if (out.options.optimizer)
    source = std::make_shared<JoinedMasters>(out.checkpoint);
  else
    source = std::make_shared<WidenedSource>(out.checkpoint, DType::f32);
  write_fsdp_dtensor(*source, folder,
                     {.iteration = out.iteration,
                      .args = common.args,
                      .common = common.common,
                      .padded_vocab_size = out.rows,
                      .optimizer = out.options.optimizer,
                      .in_16_bits = out.trained.train.bf16 || out.trained.train.fp16});
}

}  // namespace

int run_import_megatron(std::span<const std::string> args) {
  ImportOptions options;
  OptionSet set;
  set.add("Import", options);
  const CommandHelp help = {
      "phalanx convert import --megatron DIR --native DIR [flags]",
      "Converts a Megatron checkpoint to a native one: weights, optimizer state and counters. A "
      "run can\ncontinue from it where Megatron stopped. State that cannot be read is an error.",
      "phalanx convert import --megatron checkpoints/megatron --native checkpoints/native"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;

  const MegatronModel megatron(
      options.megatron, options.step, options.vocab_size.value_or(0),
      options.weights_only ? MegatronParts::weights : MegatronParts::weights_and_optimizer);
  check_holds_no_checkpoint("--native", options.native);
  const std::optional<RunState> state = megatron_run_state(megatron.common_json);
  // A folder without state and iterations is a model. From a run's folder whose state was not saved
  // (--no-save-optim) or cannot be read, a run would begin again at iteration 0 with a fresh Adam.
  const bool of_run = megatron.optimizer_saved || (state && state->iteration > 0);
  const bool wanted = !options.weights_only && of_run && !megatron.release;
  PHX_CHECK(!wanted || megatron.has_optimizer, megatron.why_no_optimizer,
            "\n  hint: --weights-only leaves optimizer state behind, and a run begins with these "
            "weights at iteration 0");
  PHX_CHECK(!wanted || state, megatron.path.string(),
            " does not say its iteration and how many samples it took, so that a run cannot go on "
            "from it\n  hint: --weights-only leaves optimizer state behind");
  const bool resumable = megatron.has_optimizer && state;
  if (resumable) check_counters(megatron);
  const TensorSource& source = resumable ? *megatron.tensors : *megatron.weights;
  CheckpointInfo info = megatron_info(megatron);
  info["options"] = imported_options(megatron).to_json();
  if (resumable)
    info["state"] = state->to_json();
  else
    info.erase("schedule");
  const int64_t iteration = resumable ? state->iteration : 0;
  note_padding(megatron);
  write_checkpoint(options.native, iteration, source, info);
  std::cout << fmt::format("{}: {} tensors{} are in {}\n", megatron.path.string(),
                           source.tensors().size(),
                           resumable ? ", optimizer state among them," : " of weights",
                           checkpoint_path(options.native, iteration).string());
  return kExitDone;
}

int run_export_megatron(std::span<const std::string> args, const Catalogue& catalogue) {
  ExportOptions options;
  OptionSet set;
  set.add("Export", options);
  const Rule rules[] = {{"one format", check_format}};
  const CommandHelp help = {
      "phalanx convert export --native DIR --torch-dist DIR [flags]",
      "Converts a native checkpoint to a torch_dist or fsdp_dtensor checkpoint, which Megatron and "
      "PyTorch's\nown reader of distributed checkpoints load. Without --optimizer, Megatron needs "
      "--no-load-optim or\n--finetune.",
      "phalanx convert export --native checkpoints/native --torch-dist checkpoints/megatron"};
  if (const auto exit_code = parse_args(set, rules, help, args)) return *exit_code;

  const auto iteration = options.step ? options.step : latest_checkpoint(options.native);
  PHX_CHECK(iteration.has_value(), "--native ", options.native,
            " holds no checkpoint (no latest_checkpointed_iteration.txt)");
  const auto checkpoint =
      std::make_shared<NativeCheckpoint>(find_checkpoint(options.native, *iteration));
  const bool fsdp = !options.fsdp_dtensor.empty();
  const Path target = fsdp ? options.fsdp_dtensor : options.torch_dist;
  check_holds_no_checkpoint(fsdp ? "--fsdp-dtensor" : "--torch-dist", target);
  const CheckpointInfo& info = checkpoint->manifest().info;
  PHX_CHECK(!options.optimizer || info.contains("state"), checkpoint->path().string(),
            " holds weights of no run, without optimizer state\n  hint: leave out --optimizer");
  const PretrainOptions trained =
      PretrainOptions::from_json(checkpoint->info("options"), catalogue);
  PHX_CHECK(!options.optimizer || trained.optim.optimizer == "adam", checkpoint->path().string(),
            " was trained with --optimizer ", trained.optim.optimizer,
            ", whose state is not written for Megatron\n  hint: leave out --optimizer");
  const TransformerConfig& model = trained.model;
  check_groups(model.moe, checkpoint->path());
  const int64_t rows =
      options.padded_vocab_size.value_or(model.padded_vocab_size.value_or(model.padded_vocab()));
  const auto embedding = checkpoint->tensors().find("embedding.word_embeddings.weight");
  const int64_t tokens =
      embedding != checkpoint->tensors().end() ? embedding->second.shape.at(0) : 0;
  PHX_CHECK(rows >= tokens, "--padded-vocab-size ", rows, " is less than the vocabulary of ",
            tokens, " tokens\n  hint: give ", tokens, " or more");
  const Path folder = target / iteration_name(*iteration);
  const Path temporary(folder.string() + ".tmp");  // of a conversion that was stopped: written anew
  remove_tree(temporary);
  const Export out{options, checkpoint, trained, *iteration, rows};
  if (fsdp)
    write_as_fsdp_dtensor(out, temporary);
  else
    write_as_torch_dist(out, temporary);
  if (Disk::real().rename(temporary.c_str(), folder.c_str()) != 0)
    throw_file_error("rename", temporary, errno);
  sync_folder(target);
  write_file(target / "latest_checkpointed_iteration.txt", std::to_string(*iteration));
  std::cout << fmt::format("{}: written to {} as {}{}\n", checkpoint->path().string(),
                           folder.string(), fsdp ? "fsdp_dtensor" : "torch_dist",
                           options.optimizer ? ", with optimizer state" : "");
  return kExitDone;
}

}  // namespace phx
