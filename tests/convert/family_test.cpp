#include "phalanx/convert/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Family, UnknownArchitecturesAreToldApartFromLackingOnes) {
  EXPECT_THAT(refusal({{"architectures", {"LlamaForCasualLM"}}}),
              AllOf(HasSubstr("architecture \"LlamaForCasualLM\" is not known"),
                    HasSubstr("did you mean LlamaForCausalLM?")));
  EXPECT_THAT(refusal({{"architectures", {"GptOssForCausalLM"}}}),
              AllOf(HasSubstr("this build does not have"), HasSubstr("attention sinks")));
  EXPECT_THAT(refusal(Json::object()), HasSubstr("which model is it?"));
}

TEST(Family, NamesAreExpandedAsAShellWould) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_names("a.{x,y}.b"), (Names{"a.x.b", "a.y.b"}));
  EXPECT_EQ(expand_names("{q,k,v}_proj"), (Names{"q_proj", "k_proj", "v_proj"}));
  EXPECT_EQ(expand_names("plain"), Names{"plain"});
  EXPECT_EQ(expand_names("a{x}"), Names{"ax"});
  EXPECT_EQ(expert_name("experts.*.{w1,w3}.weight", 12), "experts.12.{w1,w3}.weight");
  EXPECT_EQ(expert_name("plain", 12), "plain");
}

TEST(Family, AFamilyIsFoundByItsNameAndItsArchitecture) {
  EXPECT_STREQ(find_family("qwen2")->architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(find_family("qwen"), nullptr);
  EXPECT_STREQ(family_of_architecture("GPT2LMHeadModel", "x").name, "gpt2");
  EXPECT_STREQ(family_of_model_type("gemma3_text", "x").name, "gemma3_text");
  EXPECT_THAT(
      error_of([] { family_of_model_type("lama", "x/config.json"); }),
      AllOf(HasSubstr("x/config.json: model_type \"lama\" is not known; these are: llama, "),
            HasSubstr("did you mean llama?")));
  EXPECT_THAT(error_of([] { family_of_model_type("gemma3", "x"); }),
              HasSubstr("only the text models (Gemma3ForCausalLM) are read"));
}

}  // namespace
}  // namespace phx
