// A program with a model of its own has every command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/cli/commands.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/pretrain_options.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

// A decoder without MLPs.
std::vector<NamedPart> attention_only(const LayerContext& layer) {
  std::vector<NamedPart> parts = decoder_layer(layer);
  parts.pop_back();
  return parts;
}

Catalogue with_mine() {
  Catalogue catalogue = standard_catalogue();
  catalogue.models.push_back(decoder_of("mine", "layers of attention alone", attention_only));
  return catalogue;
}

std::vector<std::string> small_run(const std::string& command, const std::string& model) {
  return {command,
          "--model",
          model,
          "--num-layers",
          "2",
          "--hidden-size",
          "16",
          "--num-attention-heads",
          "2",
          "--seq-length",
          "8",
          "--max-position-embeddings",
          "8",
          "--vocab-size",
          "32",
          "--mock-data",
          "--train-iters",
          "2",
          "--lr",
          "1e-3",
          "--micro-batch-size",
          "1",
          "--global-batch-size",
          "2",
          "--tensor-model-parallel-size",
          "2"};
}

std::pair<int, std::string> run(std::vector<std::string> args, const Catalogue& catalogue) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_phalanx(args, catalogue);
  const std::string out = ::testing::internal::GetCapturedStdout();
  return {code, out + ::testing::internal::GetCapturedStderr()};
}

TEST(OwnModel, IsTrainedAndProvedAndPlannedByItsName) {
  const Catalogue catalogue = with_mine();
  for (const char* command : {"pretrain", "verify", "plan"}) {
    const auto [code, text] = run(small_run(command, "mine"), catalogue);
    EXPECT_EQ(code, kExitDone) << command << ": " << text;
  }
  const auto parameters = [&](const char* model) {
    const auto [code, text] = run(small_run("pretrain", model), catalogue);
    const size_t at = text.find("model: ");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_NE(parameters("mine"), parameters("gpt")) << "the flag chooses nothing";
}

TEST(OwnModel, RecomputeModulesTakesPartsOfItsLayersByName) {
  const auto problems = [](const std::string& model, std::vector<std::string> modules) {
    std::vector<std::string> args = small_run("", model);
    args.erase(args.begin());
    args.insert(args.end(), {"--recompute-granularity", "selective", "--recompute-modules"});
    args.insert(args.end(), modules.begin(), modules.end());
    return parse_pretrain(args, std::nullopt, RanksFrom::command, with_mine()).report.problems;
  };
  EXPECT_EQ(problems("mine", {"core_attn", "self_attention"}).size(), 0u);
  EXPECT_EQ(problems("gpt", {"mlp", "layernorm"}).size(), 0u);
  const Problems found = problems("mine", {"layernorm", "mlp"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].flag, "--recompute-modules");
  EXPECT_EQ(found[0].text,
            "--recompute-modules mlp: no layer of --model mine has a part of this name");
  EXPECT_EQ(found[0].hint,
            "parts of its layers: self_attention; places in parts: core_attn, layernorm, "
            "activation, moe_act, shared_experts, mla_up_proj");
}

// Adds nothing, and does not say that it takes a share of each sequence.
class Quiet : public LayerPart {
 public:
  Tensor add_to(const Tensor& residual, const Tensor&, const LayerCall&) override {
    return residual;
  }
};

TEST(OwnModel, PartsThatNeedWholeSequencesAreToldByCheckArgs) {
  Catalogue catalogue = with_mine();
  catalogue.models.push_back(
      decoder_of("quiet", "a part that says nothing", [](const LayerContext& layer) {
        std::vector<NamedPart> parts = decoder_layer(layer);
        parts.push_back({"quiet", std::make_unique<Quiet>()});
        return parts;
      }));
  const auto check = [&](const char* model) {
    std::vector<std::string> args = small_run("pretrain", model);
    args.insert(args.end(), {"--context-parallel-size", "2", "--check-args"});
    return run(args, catalogue);
  };
  EXPECT_EQ(check("mine").first, kExitDone);
  const auto [code, text] = check("quiet");
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(text, HasSubstr("--context-parallel-size 2: this model, or a part of its layers, "
                              "needs whole sequences"));
  EXPECT_THAT(text, HasSubstr("override takes_context_parallel()"));
}

TEST(OwnModel, AnUnknownNameIsAnErrorThatListsTheModels) {
  const auto [code, text] = run(small_run("pretrain", "yours"), with_mine());
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(text, HasSubstr("--model yours is not in the catalogue of this program"));
  EXPECT_THAT(text, HasSubstr("it has gpt, mine"));
}

TEST(OwnModel, ACheckpointOfAnotherModelIsRefused) {
  const TempFolder folder;
  auto args = small_run("pretrain", "mine");
  args.insert(args.end(), {"--save", folder.path().string(), "--save-interval", "2"});
  EXPECT_EQ(run(args, with_mine()).first, kExitDone);
  auto other = small_run("pretrain", "gpt");
  other.insert(other.end(), {"--load", folder.path().string(), "--train-iters", "3"});
  const auto [code, text] = run(other, with_mine());
  EXPECT_EQ(code, kExitFailed);
  EXPECT_THAT(text, HasSubstr("--model: \"mine\" in the checkpoint, \"gpt\" now"));
}

struct MineOptions {
  bool with_mlp = false;
  template <class Field>
  void each(Field&& field) {
    field("mine-with-mlp", with_mlp, "keep the MLPs");
  }
};
struct StepsOptions {
  double step = 0.5;
  template <class Field>
  void each(Field&& field) {
    field("lr-step", step, "factor of each step", InRange{0, 1});
  }
};

// A model and a learning-rate schedule, each with a flag.
Catalogue with_options() {
  Catalogue catalogue = standard_catalogue();
  catalogue.models.push_back(decoder_of(
      "mine", "with or without MLPs",
      [](const LayerContext& layer, const OwnOptions& options) {
        return options.get<MineOptions>().with_mlp ? decoder_layer(layer) : attention_only(layer);
      },
      OwnOptions::of<MineOptions>()));
  catalogue.lr_schedules.push_back({.name = "steps",
                                    .help = "falls in steps",
                                    .rate =
                                        [](const LrPoint& point, const OwnOptions& options) {
                                          return point.most * options.get<StepsOptions>().step;
                                        },
                                    .options = OwnOptions::of<StepsOptions>()});
  return catalogue;
}

std::vector<std::string> plus(std::vector<std::string> args, std::vector<std::string> more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(OwnModel, OptionsOfEntriesAreInHelpAndAreParsed) {
  const Catalogue catalogue = with_options();
  const std::string help = pretrain_help(catalogue);
  EXPECT_THAT(help, HasSubstr("--mine-with-mlp"));
  EXPECT_THAT(help, HasSubstr("With --model mine"));
  EXPECT_THAT(help, HasSubstr("--lr-step"));
  EXPECT_THAT(pretrain_help(), ::testing::Not(HasSubstr("--mine-with-mlp")));
  auto args = small_run("pretrain", "mine");
  args.erase(args.begin());
  const auto parse = [&](std::vector<std::string> more) {
    return parse_pretrain(plus(args, std::move(more)), 2, RanksFrom::command, catalogue);
  };
  const ParseResult with = parse({"--mine-with-mlp", "--lr-decay-style", "steps"});
  ASSERT_TRUE(with.report.ok()) << format_problems(with.report.problems);
  EXPECT_TRUE(with.options.family().options.get<MineOptions>().with_mlp);
  EXPECT_FALSE(parse({}).options.family().options.get<MineOptions>().with_mlp);
  EXPECT_THAT(with.options.to_json(), HasSubstr("\"mine_with_mlp\":true"));
  const PretrainOptions read = PretrainOptions::from_json(with.options.to_json(), catalogue);
  EXPECT_EQ(read.to_json(), with.options.to_json());
  EXPECT_FALSE(parse({"--lr-step", "2"}).report.ok());
  EXPECT_FALSE(parse({"--lr-decay-style", "stairs"}).report.ok());
}

TEST(OwnModel, OptionsOfEntriesAreComparedOnResume) {
  const TempFolder folder;
  const auto args = plus(small_run("pretrain", "mine"),
                         {"--mine-with-mlp", "--lr-decay-style", "steps", "--lr-decay-iters", "9"});
  const auto saved = plus(args, {"--save", folder.path().string(), "--save-interval", "2"});
  EXPECT_EQ(run(saved, with_options()).first, kExitDone);
  const auto resume = [&](std::vector<std::string> more) {
    return run(
        plus(plus(args, {"--load", folder.path().string(), "--train-iters", "3"}), std::move(more)),
        with_options());
  };
  EXPECT_EQ(resume({}).first, kExitDone) << resume({}).second;
  EXPECT_THAT(resume({"--mine-with-mlp=false"}).second,
              HasSubstr("--mine-with-mlp: true in the checkpoint, false now"));
  EXPECT_THAT(resume({"--lr-step", "0.25"}).second,
              HasSubstr("--lr-step: 0.5 in the checkpoint, 0.25 now"));
  EXPECT_THAT(resume({"--optimizer", "sgd"}).second,
              HasSubstr("--optimizer: \"adam\" in the checkpoint, \"sgd\" now"));
}

TEST(OwnModel, CheckpointArgsBringTheModelAndItsOptions) {
  const TempFolder folder;
  const auto saved =
      plus(small_run("pretrain", "mine"),
           {"--mine-with-mlp", "--save", folder.path().string(), "--save-interval", "2"});
  EXPECT_EQ(run(saved, with_options()).first, kExitDone);
  const std::vector<std::string> args = {"--use-checkpoint-args",
                                         "--load",
                                         folder.path().string(),
                                         "--mock-data",
                                         "--train-iters",
                                         "3",
                                         "--lr",
                                         "1e-3",
                                         "--micro-batch-size",
                                         "1",
                                         "--override-opt-param-scheduler"};
  const ParseResult taken = parse_pretrain(args, 1, RanksFrom::command, with_options());
  ASSERT_TRUE(taken.report.ok()) << format_problems(taken.report.problems);
  EXPECT_EQ(taken.options.choice.model, "mine");
  EXPECT_TRUE(taken.options.family().options.get<MineOptions>().with_mlp);
}

}  // namespace
}  // namespace phx
