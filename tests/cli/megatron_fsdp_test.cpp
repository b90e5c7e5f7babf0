// Folders of Megatron-FSDP (--ckpt-format fsdp_dtensor), which two of its ranks wrote:
// megatron_runs.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "cli/captured.h"
#include "cli/megatron_runs.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/report/metrics.h"

namespace phx {
namespace {

using namespace phx::testing::megatron;
using ::phx::testing::run;
using ::testing::HasSubstr;

struct Saved {
  const char* name;
  double loss;  // tolerance: as in megatron_torch_dist_test.cpp
};

class MegatronFsdp : public ::testing::TestWithParam<Saved> {
 protected:
  Path folder() const { return fixture(GetParam().name); }

  // Loads `from` and takes the three iterations that Megatron took.
  void expect_losses(const std::string& from, const std::string& ranks = "") const {
    const TempFolder out;
    const Path metrics = out / "metrics.jsonl";
    const auto outcome = run(words(pretrain(GetParam().name, from, out) +
                                   str_cat("--metrics-file ", metrics.string(), " ", ranks)));
    ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    const auto losses = read_losses(metrics).train;
    const auto theirs = about(folder()).at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i)
      EXPECT_NEAR(losses[i].second, theirs[i], GetParam().loss) << "iteration " << 4 + i;
  }
};

TEST_P(MegatronFsdp, AnImportGoesOnAsMegatron) {
  const TempFolder out;
  const auto imported =
      run({"convert", "import", "--megatron", folder(), "--native", out / "native"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("optimizer state among them"));
  expect_losses(out / "native");
}

TEST_P(MegatronFsdp, ItsFolderIsLoadedAsItIs) { expect_losses(folder()); }

TEST_P(MegatronFsdp, ItsFolderIsLoadedByShardedRanks) {
  expect_losses(folder(), "--use-megatron-fsdp --local-ranks 2");
}

// Out and back: every tensor to the bit, counters and schedules too.
TEST_P(MegatronFsdp, ExportsAreReadAgain) {
  const TempFolder out;
  const std::string first = out / "first", exported = out / "exported", second = out / "second";
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"convert", "import", "--megatron", folder(), "--native", first},
           {"convert", "export", "--native", first, "--fsdp-dtensor", exported, "--optimizer"},
           {"convert", "import", "--megatron", exported, "--native", second}}) {
    const auto outcome = run(command);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  const NativeCheckpoint before(checkpoint_path(first, 3)), after(checkpoint_path(second, 3));
  EXPECT_EQ(after.info("state"), before.info("state"));
  EXPECT_EQ(parse_json(after.info("schedule")), parse_json(before.info("schedule")));
  EXPECT_EQ(parse_json(after.info("options")), parse_json(before.info("options")));
  ASSERT_EQ(after.tensors(), before.tensors());
  for (const auto& [name, info] : before.tensors())
    EXPECT_EQ(read_numbers(after, name), read_numbers(before, name)) << name;
}

// Megatron asks for the keys that it writes, with the shapes that it has.
TEST_P(MegatronFsdp, ExportsHaveTheKeysAndShapesOfMegatronsOwn) {
  const TempFolder out;
  const std::string native = out / "native", exported = out / "exported";
  ASSERT_EQ(run({"convert", "import", "--megatron", folder(), "--native", native}).code, 0);
  const auto outcome =
      run({"convert", "export", "--native", native, "--fsdp-dtensor", exported, "--optimizer"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto ours = TorchDistMetadata::read(checkpoint_path(exported, 3) / ".metadata");
  const auto theirs = TorchDistMetadata::read(folder() / "iter_0000003/.metadata");
  for (const auto& [key, tensor] : theirs.tensors) {
    const auto found = ours.tensors.find(key);
    ASSERT_NE(found, ours.tensors.end()) << key;
    EXPECT_EQ(found->second.info, tensor.info) << key;
  }
  for (const auto& [key, place] : theirs.objects) EXPECT_TRUE(ours.objects.contains(key)) << key;
}

INSTANTIATE_TEST_SUITE_P(Cases, MegatronFsdp,
                         ::testing::Values(Saved{"gpt2_fsdp2", 1e-6},
                                           Saved{"llama_bf16_fsdp2", 1.6e-3}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MegatronFsdpExport, OneFormatIsAskedFor) {
  const auto both =
      run({"convert", "export", "--native", "x", "--torch-dist", "y", "--fsdp-dtensor", "z"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--torch-dist and --fsdp-dtensor exclude each other"));
}

TEST(MegatronFsdpExport, WeightsAloneAreLoadedWithoutState) {
  const TempFolder out;
  const std::string native = out / "native", exported = out / "exported";
  ASSERT_EQ(run({"convert", "import", "--megatron", fixture("llama_bf16_fsdp2"), "--native", native,
                 "--weights-only"})
                .code,
            0);
  const auto outcome = run({"convert", "export", "--native", native, "--fsdp-dtensor", exported});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto check = run({"convert", "check", "--megatron", exported, "--native", native});
  EXPECT_EQ(check.code, 0) << check.out << check.err;
}

}  // namespace
}  // namespace phx
