#include "phalanx/cli/open_model.h"

#include <gtest/gtest.h>

#include "cli/converted.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using testing::fixture;

TEST(OpenModel, AHuggingFaceFolderIsOpenedByItsConfig) {
  const OpenedModel opened = open_model(fixture("qwen3"), std::nullopt);
  EXPECT_TRUE(opened.options.model.qk_layernorm);
  EXPECT_FALSE(opened.tensors->tensors().empty());
  EXPECT_EQ(
      error_of([] { open_model(fixture("qwen3"), 5); }),
      "--ckpt-step 5: " + fixture("qwen3") + " is a Hugging Face folder, which has no iterations");
}

TEST(OpenModel, ANativeFolderGivesTheSameModel) {
  const TempFolder folder;
  ASSERT_EQ(testing::convert({"import", "--hf", fixture("qwen3"), "--native", folder.path()}).code,
            0);
  const OpenedModel native = open_model(folder.path(), std::nullopt),
                    hf = open_model(fixture("qwen3"), std::nullopt);
  EXPECT_EQ(native.options.model.hidden_size, hf.options.model.hidden_size);
  EXPECT_EQ(native.tensors->tensors().size(), hf.tensors->tensors().size());
}

TEST(OpenModel, AnEmptyFolderHoldsNoCheckpoint) {
  const TempFolder folder;
  EXPECT_EQ(error_of([&] { open_model(folder.path(), std::nullopt); }),
            "--load " + folder.path().string() +
                " holds no checkpoint (no latest_checkpointed_iteration.txt)");
}

TEST(OpenModel, ATokenizerThatMovedIsToldWithTheFlagThatSaysWhereItIs) {
  DataConfig kept, given;
  kept.tokenizer_type = "HuggingFaceTokenizer";
  kept.tokenizer_model = "somewhere/tokenizer.json";
  EXPECT_EQ(error_of([&] { check_kept_tokenizer("out", kept, given); }),
            "--tokenizer-model somewhere/tokenizer.json is not there; the path is from out, the "
            "checkpoint of a run that had this tokenizer, and begins in the folder that the run "
            "was started in\n  hint: --tokenizer-model PATH says where it is now");
  given.tokenizer_model = kept.tokenizer_model;
  check_kept_tokenizer("out", kept, given);  // who typed it is told when it is opened
  kept.tokenizer_type = "ByteTokenizer";
  check_kept_tokenizer("out", kept, {});
  kept.tokenizer_type = "GPT2BPETokenizer";
  kept.vocab_file = "/no/vocab.json";
  EXPECT_TRUE(error_of([&] {
                check_kept_tokenizer("out", kept, {});
              }).starts_with("--vocab-file /no/vocab.json is not there"));
}

}  // namespace
}  // namespace phx
