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

}  // namespace
}  // namespace phx
