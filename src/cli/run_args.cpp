#include "phalanx/cli/run_args.h"

#include <algorithm>
#include <sstream>

#include "phalanx/convert/hf_model.h"

namespace phx {

SplitArgs split_args(const OptionSet& own, std::span<const std::string> args) {
  SplitArgs split;
  for (size_t i = 0; i < args.size(); ++i) {
    split.help |= args[i] == "--help" || args[i] == "-h";
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    const Option* option = name.starts_with("--") ? own.find(name.substr(2)) : nullptr;
    (option != nullptr ? split.own : split.pretrain).push_back(args[i]);
    const bool takes_next = option != nullptr && option->kind == Option::Kind::single &&
                            equals == std::string::npos && i + 1 < args.size();
    if (takes_next) split.own.push_back(args[++i]);
  }
  return split;
}

ParseResult parse_run(std::vector<std::string> args, std::optional<int64_t> world,
                      const Catalogue& catalogue) {
  const std::vector<std::vector<std::string>> left_out = {
      {"--lr", "1e-4"}, {"--train-iters", "1"}, {"--data-path", ""}};
  const ParseResult first = parse_pretrain(args, world, RanksFrom::command, catalogue);
  for (const auto& flag : left_out) {
    const bool missing = std::ranges::any_of(first.report.problems, [&](const Problem& problem) {
      return problem.flag == flag[0] && problem.text.find("is required") != std::string::npos;
    });
    if (!missing) continue;
    if (flag[1].empty())
      args.push_back("--mock-data");
    else
      args.insert(args.end(), flag.begin(), flag.end());
  }
  return parse_pretrain(args, world, RanksFrom::command, catalogue);
}

namespace {

// Nothing is trained, so nothing is read, evaluated, logged, saved or waited for.
constexpr const char* kOfRuns =
    "data-path train-data-path valid-data-path test-data-path data-args-path "
    "per-split-data-args-path token-file dataset split data-cache-path mid-level-dataset-surplus "
    "dataloader-type data-sharding exit-interval exit-duration-in-mins eval-iters eval-interval "
    "skip-train log-interval tensorboard-dir tensorboard-log-interval metrics-file check-args "
    "profile profile-step-start profile-step-end profile-ranks profile-dir nvtx-ranges save "
    "auto-resume save-verify save-into-used-folder save-interval save-retain-interval "
    "save-hf-interval "
    "async-save save-buffer-mib save-optim "
    "load-optim save-rng load-rng finetune exit-on-missing-checkpoint load-newest-valid "
    "check-for-nan-in-loss-and-grad override-opt-param-scheduler distributed-timeout-minutes "
    "threads";
// Of how documents are told apart: proofs have made-up tokens, with documents in their own cases.
constexpr const char* kOfDocuments =
    "reset-position-ids reset-attention-mask eod-mask-loss dataloader-inter-document-masking";
// A proof is in fp64 on the CPU; that of resuming has the run's precision.
constexpr const char* kOfPrecision =
    "bf16 fp16 grad-reduce-in-bf16 main-grads-dtype exp-avg-dtype exp-avg-sq-dtype loss-scale "
    "initial-loss-scale min-loss-scale loss-scale-window hysteresis";
constexpr const char* kOfDevices = "device deterministic-mode gemm-table";
// Shapes and bytes do not depend on these.
constexpr const char* kOfNumbers =
    "lr min-lr decoupled-lr decoupled-min-lr lr-decay-style lr-decay-iters lr-decay-samples "
    "lr-warmup-iters lr-warmup-samples lr-warmup-fraction lr-warmup-init lr-wsd-decay-style "
    "lr-wsd-decay-iters lr-wsd-decay-samples weight-decay start-weight-decay end-weight-decay "
    "weight-decay-incr-style clip-grad adam-beta1 adam-beta2 adam-eps sgd-momentum loss-scale "
    "initial-loss-scale min-loss-scale loss-scale-window hysteresis train-iters train-samples seed "
    "init-method-std gemm-table";

std::vector<const char*> meaningless_to(RunCommand command) {
  switch (command) {
    case RunCommand::plan:
    case RunCommand::tune:
      return {kOfRuns, kOfNumbers};
    case RunCommand::verify:
      return {kOfRuns, kOfDocuments, kOfPrecision, kOfDevices};
    case RunCommand::verify_resume:
      return {kOfRuns, kOfDocuments, kOfDevices};
  }
  return {};
}

const char* name_of(RunCommand command) {
  if (command == RunCommand::plan) return "plan";
  return command == RunCommand::tune ? "tune" : "verify";
}

}  // namespace

std::string meaningless_flags(RunCommand command, std::span<const std::string> args,
                              const ParseReport& report, bool world_is_given,
                              const Catalogue& catalogue) {
  PretrainOptions given(catalogue);
  OptionSet set = pretrain_option_set(given);
  set.parse(args);
  std::vector<std::string> flags;
  const auto note = [&](const std::string& name) {
    const Option& option = set.at(name);
    if (option.given && std::ranges::find(flags, option.flag()) == flags.end())
      flags.push_back(option.flag());
  };
  for (const char* names : meaningless_to(command)) {
    std::istringstream words(names);
    for (std::string name; words >> name;) note(name);
  }
  if (world_is_given) note("local-ranks");
  // Options of the model may come from there.
  const bool reads = given.train.use_checkpoint_args ||
                     !(set.at("num-layers").given || set.at("hidden-size").given ||
                       set.at("num-attention-heads").given);
  if (!reads && !is_hf_folder(given.train.load)) note("load");
  if (!reads && !is_hf_folder(given.train.pretrained_checkpoint)) note("pretrained-checkpoint");
  for (const auto& [flag, why] : report.implied)
    if (std::ranges::find(flags, flag) == flags.end()) flags.push_back(flag);
  std::string text;
  for (const std::string& flag : flags) text += (text.empty() ? " " : ", ") + flag;
  return text.empty()
             ? ""
             : std::string("without meaning for phalanx ") + name_of(command) + ":" + text + "\n";
}

}  // namespace phx
