// Runs that Megatron-LM itself trained and saved with --ckpt-format torch, and what it computed
// (scripts/check_megatron_legacy.py --fixtures): saved after iteration 3, logits then and after
// iteration 6, losses between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "cli/captured.h"
#include "cli/logits_difference.h"
#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/report/metrics.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::phx::testing::logits_difference;
using ::phx::testing::run;
using ::testing::HasSubstr;

// What tells a case from another; Megatron prints losses with seven digits.
struct Legacy {
  const char* name;
  const char* layout;   // flags of Megatron's ranks, which are none of ours
  double loss, logits;  // tolerances of the iterations that we add
};

// fp32: roundings of other sums, of numbers near 3. Of 16-bit runs every activation is rounded,
// and by other orders differently. bf16: some five times the largest differences seen (7.8e-5 of
// losses, 8.4e-4 of logits); fp16: half a place is 5e-4.
const Legacy kCases[] = {
    {"gpt2_vpp2_do",
     "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
     "--use-distributed-optimizer",
     1e-6, 2e-6},
    {"gpt2_1p_buckets", "--use-distributed-optimizer --overlap-grad-reduce --ddp-bucket-size 300",
     1e-6, 2e-6},
    {"llama_bf16_tp2", "--tensor-model-parallel-size 2", 4e-4, 4e-3},
    {"gpt2_fp16", "", 5e-4, 5e-3},
};

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

class MegatronLegacyRun : public ::testing::TestWithParam<Legacy> {
 protected:
  Path folder() const { return Path(PHX_TEST_DATA) / "megatron_legacy" / GetParam().name; }
  nlohmann::json about() const { return parse_json(read_file(folder() / "run.json")); }

  // Megatron's flags of the run without those of its layout. Its loss counts the padding of the
  // vocabulary among the tokens, ours does not: as tokens it stays.
  std::vector<std::string> flags(const std::string& more) const {
    std::string text = about().at("flags").get<std::string>() + " ";
    const std::string layout = GetParam().layout;
    if (const size_t at = text.find(layout); !layout.empty() && at != text.npos)
      text.erase(at, layout.size());
    const std::string vocabulary = "--vocab-size 21";
    const int64_t rows = layout.find("tensor-model") == layout.npos ? 24 : 32;
    text.replace(text.find(vocabulary), vocabulary.size(), str_cat("--vocab-size ", rows));
    const Path data = Path(PHX_TEST_DATA) / "megatron_legacy/tokens";
    return words(str_cat("pretrain ", text, "--tokenizer-type NullTokenizer --data-path ",
                         data.string(), " --no-bias-gelu-fusion --load ", folder().string(), " ",
                         more));
  }
};

TEST_P(MegatronLegacyRun, LogitsAreMegatrons) {
  EXPECT_LE(logits_difference({"--megatron", folder()}, folder() / "logits_3.safetensors"), 1e-6);
}

// Adam's moments, its step, masters and the loss scale: a run without one of them drifts at once.
TEST_P(MegatronLegacyRun, TrainingGoesOnAsMegatrons) {
  const TempFolder out;
  const auto outcome = run(flags(str_cat("--save ", (out / "run").string(), " --metrics-file ",
                                         (out / "metrics.jsonl").string(), " --data-cache-path ",
                                         (out / "cache").string())));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const auto losses = read_losses(out / "metrics.jsonl").train;
  const auto theirs = about().at("losses").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), theirs.size());
  for (size_t i = 0; i < theirs.size(); ++i) {
    EXPECT_EQ(losses[i].first, double(4 + i));
    EXPECT_NEAR(losses[i].second, theirs[i], GetParam().loss * theirs[i]) << "iteration " << 4 + i;
  }
  EXPECT_LE(logits_difference({"--native", out / "run"}, folder() / "logits_6.safetensors"),
            GetParam().logits);
}

// Its layernorm_epsilon and layernorm_zero_centered_gamma are our --norm-epsilon and
// --apply-layernorm-1p.
TEST(MegatronLegacy, CheckpointArgsDescribeTheModel) {
  const TempFolder out;
  const Path fixtures = Path(PHX_TEST_DATA) / "megatron_legacy",
             folder = fixtures / "gpt2_1p_buckets";
  const auto outcome = run(words(str_cat(
      "pretrain --use-checkpoint-args --load ", folder.string(), " --data-path ",
      (fixtures / "tokens").string(), " --data-cache-path ", (out / "cache").string(),
      " --tokenizer-type NullTokenizer --vocab-size 24 --split 100,0,0 --micro-batch-size 1 "
      "--global-batch-size 2 --train-iters 4 --lr-decay-iters 6 --lr 1e-2 --min-lr 1e-3 "
      "--lr-decay-style cosine --lr-warmup-iters 1 --weight-decay 0.1 --adam-beta2 0.95 "
      "--eval-iters 0 --log-interval 1 --metrics-file ",
      (out / "metrics.jsonl").string())));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const auto losses = read_losses(out / "metrics.jsonl").train;
  const auto theirs = parse_json(read_file(folder / "run.json")).at("losses");
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NEAR(losses[0].second, theirs[0].get<double>(), 1e-6 * theirs[0].get<double>());
}

// An import goes on as Megatron's run, under its own schedules.
TEST(MegatronLegacy, AnImportKeepsSchedulesAndAdamsState) {
  const TempFolder out;
  const Path fixtures = Path(PHX_TEST_DATA) / "megatron_legacy", folder = fixtures / "gpt2_fp16";
  const std::string native = out / "native";
  ASSERT_EQ(
      run({"convert", "import", "--megatron", folder, "--native", native, "--vocab-size", "24"})
          .code,
      0);
  const auto about = parse_json(read_file(folder / "run.json"));
  std::string flags = about.at("flags").get<std::string>();
  flags.replace(flags.find("--vocab-size 21"), 15, "--vocab-size 24");
  const std::string pretrain = str_cat(
      "pretrain ", flags, " --tokenizer-type NullTokenizer --no-bias-gelu-fusion --data-path ",
      (fixtures / "tokens").string(), " --data-cache-path ", (out / "cache").string(), " --load ",
      native, " --metrics-file ", (out / "metrics.jsonl").string());
  const auto refused = run(words(pretrain + " --lr 2e-2"));
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("--lr: 0.01 in the checkpoint, 0.02 now"));
  const auto outcome = run(words(pretrain));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const auto losses = read_losses(out / "metrics.jsonl").train;
  const auto theirs = about.at("losses").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), theirs.size());
  for (size_t i = 0; i < theirs.size(); ++i)
    EXPECT_NEAR(losses[i].second, theirs[i], 5e-4 * theirs[i]) << "iteration " << 4 + i;
}

TEST(MegatronLegacy, FlagsThatContradictTheCheckpointAreRefused) {
  const Path fixtures = Path(PHX_TEST_DATA) / "megatron_legacy";
  const auto outcome = run(words(
      str_cat("pretrain --num-layers 2 --hidden-size 8 --num-attention-heads 2 --ffn-hidden-size 8 "
              "--seq-length 8 --max-position-embeddings 8 --load ",
              (fixtures / "gpt2_1p_buckets").string(),
              " --mock-data --vocab-size 24 --micro-batch-size 1 --train-iters 4 --lr 1e-2")));
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("--apply-layernorm-1p: true in the checkpoint, false now"));
  EXPECT_THAT(outcome.err, HasSubstr("--norm-epsilon: 1e-06 in the checkpoint, 1e-05 now"));
}

INSTANTIATE_TEST_SUITE_P(Cases, MegatronLegacyRun, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace phx
