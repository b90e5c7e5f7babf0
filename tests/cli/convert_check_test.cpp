#include "phalanx/cli/convert_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/converted.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/pretrain_command.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// transformers' fp32 RoPE is 2.3e-4 from exact logits here, of up to 9: more than rounding
// elsewhere.
TEST(ConvertCheck, ARightImportIsRightAt512Tokens) {
  const TempFolder folder;
  const std::string native = folder / "native", hf = fixture("llama_long");
  ASSERT_EQ(convert({"import", "--hf", hf, "--native", native}).code, 0);
  const Converted checked =
      convert({"check", "--hf", hf, "--native", native, "--logits", hf + "/logits.safetensors"});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("logits of 512 tokens"), HasSubstr("KL "),
                                 HasSubstr("relative error "), HasSubstr("largest difference")));
  for (const char* limit : {"--tolerance", "--kl-tolerance"})
    EXPECT_EQ(convert({"check", "--hf", hf, "--native", native, "--logits",
                       hf + "/logits.safetensors", limit, "1e-12"})
                  .code,
              1)
        << limit;
}

TEST(ConvertCheck, CheckFindsAnotherModel) {
  const TempFolder folder;
  const std::string native = folder / "native";
  ASSERT_EQ(convert({"import", "--hf", fixture("qwen3"), "--native", native}).code, 0);
  const Converted rounded =
      convert({"export", "--native", native, "--hf", folder / "out", "--dtype", "bf16"});
  ASSERT_EQ(rounded.code, 0) << rounded.err;
  const Converted outcome = convert({"check", "--hf", folder / "out", "--native", native});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("types differ"), HasSubstr("elements, by up to"),
                                 HasSubstr("logits of 32 tokens"), HasSubstr("the two differ")));
}

// A step of a run on a CPU, saved in `native`.
void train_a_step(const std::string& model, const std::string& native) {
  std::istringstream flags(
      model +
      " --seq-length 8 --mock-data --train-iters 1 --lr 1e-30 --weight-decay 0 "
      "--lr-decay-style constant --micro-batch-size 1 --global-batch-size 2 "
      "--attention-dropout 0 --hidden-dropout 0 --device cpu --eval-iters 0 "
      "--save-interval 1 --save " +
      native);
  std::vector<std::string> args;
  for (std::string word; flags >> word;) args.push_back(word);
  ::testing::internal::CaptureStdout();
  const int code = run_pretrain(args);
  const std::string out = ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0) << out;
}

// What routers keep is loaded and compared as weights are. Loads of a step, which are training's,
// are not.
TEST(ConvertCheck, BiasesOfExpertsAreChecked) {
  const TempFolder folder;
  const std::string native = folder / "native", hf = fixture("deepseek_v3");
  const std::string load =
      "--load " + hf +
      " --moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 1e-2";
  train_a_step(load + " --moe-router-bias-update-rate 0", native);
  const Converted same =
      convert({"check", "--hf", hf, "--native", native, "--logits", hf + "/logits.safetensors"});
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, HasSubstr("tensors: 29 of 29 are equal"));

  train_a_step(load + " --moe-router-bias-update-rate 0.5", folder / "moved");
  const Converted moved = convert({"check", "--hf", hf, "--native", folder / "moved"});
  EXPECT_EQ(moved.code, 1);
  EXPECT_THAT(moved.out,
              AllOf(HasSubstr("decoder.layers.1.mlp.router.expert_bias differs: 8 of 8 elements"),
                    HasSubstr("tensors: 28 of 29 are equal, largest difference 0.5"),
                    HasSubstr("the two differ")));
}

// Folders of DeepSeek-V3 have biases also where they were written from a model without: zeros.
TEST(ConvertCheck, NoBiasesOfExpertsAreZeros) {
  const TempFolder folder;
  const std::string native = folder / "native", hf = folder / "hf";
  train_a_step(
      "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 16 --swiglu "
      "--normalization RMSNorm --norm-epsilon 1e-6 --disable-bias-linear --qk-layernorm "
      "--multi-latent-attention --kv-lora-rank 8 --qk-head-dim 8 --qk-pos-emb-head-dim 4 "
      "--v-head-dim 8 --position-embedding-type rope --max-position-embeddings 8 --vocab-size 32 "
      "--untie-embeddings-and-output-weights --num-experts 4 --moe-router-topk 2 "
      "--moe-router-score-function sigmoid",
      native);
  const Converted exported = convert({"export", "--native", native, "--hf", hf});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Converted checked = convert({"check", "--hf", hf, "--native", native});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("the two are the same model"));
}

TEST(ConvertCheck, NeedsTwoThingsToCompare) {
  const char* const rule = "convert check needs two models: --native with --hf or --megatron";
  EXPECT_THAT(convert({"check"}).err, HasSubstr(rule));
  EXPECT_THAT(convert({"check", "--hf", "a"}).err, HasSubstr(rule));
  EXPECT_THAT(convert({"check", "--hf", "a", "--megatron", "b"}).err,
              HasSubstr("--hf and --megatron exclude each other"));
  const TempFolder folder;
  EXPECT_THAT(convert({"check", "--hf", fixture("qwen3"), "--native", folder.path()}).err,
              HasSubstr(" holds no checkpoint (no latest_checkpointed_iteration.txt)"));
}

TEST(ConvertCheck, TensorsAloneNeedNoLogits) {
  const TempFolder folder;
  ASSERT_EQ(convert({"import", "--hf", fixture("qwen3"), "--native", folder / "native"}).code, 0);
  const Converted checked =
      convert({"check", "--hf", fixture("qwen3"), "--native", folder / "native", "--tensors-only"});
  EXPECT_EQ(checked.code, kExitDone) << checked.err;
  EXPECT_THAT(checked.out, ::testing::Not(HasSubstr("logits of")));
  EXPECT_THAT(convert({"check", "--hf", fixture("qwen3"), "--native", folder / "native", "--logits",
                       fixture("qwen3") + "/logits.safetensors", "--prompt-ids", "1"})
                  .err,
              HasSubstr("--prompt-ids and --logits, which has its own tokens, exclude each other"));
}

}  // namespace
}  // namespace phx
