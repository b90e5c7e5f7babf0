#include "phalanx/cli/convert_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/converted.h"
#include "phalanx/cli/exit_codes.h"
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
