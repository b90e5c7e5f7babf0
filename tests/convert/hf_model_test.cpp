// The folders of tests/data/hf were written by the transformers library, with the logits that it
// computes (scripts/make_hf_fixtures.py).
#include "phalanx/convert/hf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/convert/logits.h"
#include "phalanx/convert/widened_source.h"
#include "support/gradients.h"

namespace phx {
namespace {

using phx::testing::test_device;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(HfModel, LogitsEqualTheLibrarysTo1e4) {
  for (const char* name : kHfFixtures) {
    SCOPED_TRACE(name);
    const HfModel hf(hf_fixture(name));
    const SafetensorsFile file(hf_fixture(name) / "logits.safetensors");
    const std::vector<double> ours =
        logits_of(hf.config.model, *hf.tensors, values<int64_t>(file.at("tokens")), DType::f32,
                  test_device());
    const std::vector<float> theirs = values<float>(file.at("logits"));
    const std::vector<double> wide(theirs.begin(), theirs.end());
    // What the project promises; both sides compute in fp32, with logits of up to about 10.
    EXPECT_LE(compare_logits(ours, wide, *hf.config.model.vocab_size).largest, 1e-4);
  }
}

// What leaves names and shapes alone could be lost without a test of names noticing.
TEST(HfModel, EverythingThatTheConfigSaysMovesTheLogits) {
  using Change = void (*)(TransformerConfig&);
  const std::pair<const char*, Change> cases[] = {
      {"llama3", [](TransformerConfig& c) { c.use_rope_scaling = false; }},
      {"llama_bias", [](TransformerConfig& c) { c.rotary_seq_len_interpolation_factor.reset(); }},
      {"mistral",
       [](TransformerConfig& c) {
         c.window_size = WindowSize{6, 0};
       }},
      {"qwen2", [](TransformerConfig& c) { c.window_attn_skip_freq.reset(); }},
      {"qwen2", [](TransformerConfig& c) { c.rotary_base = 10000; }},
      {"qwen2_yarn", [](TransformerConfig& c) { c.rotary_scaling_factor = 2; }},
      {"qwen3", [](TransformerConfig& c) { c.norm_epsilon = 1e-2; }},
      {"mixtral",
       [](TransformerConfig& c) {
         c.window_size = WindowSize{7, 0};
       }},
      {"mixtral", [](TransformerConfig& c) { c.moe.moe_router_topk = 1; }},
      {"mixtral", [](TransformerConfig& c) { c.moe.moe_router_pre_softmax = true; }},
      {"qwen2_moe", [](TransformerConfig& c) { c.moe.moe_router_pre_softmax = false; }},
      {"qwen3_moe", [](TransformerConfig& c) { c.moe.moe_router_pre_softmax = true; }},
      {"qwen3_moe_old", [](TransformerConfig& c) { c.moe.moe_router_topk = 2; }},
      {"olmoe", [](TransformerConfig& c) { c.moe.moe_router_pre_softmax = false; }},
      {"olmoe", [](TransformerConfig& c) { c.norm_epsilon = 1e-2; }},
      {"deepseek_v2", [](TransformerConfig& c) { c.moe.moe_router_pre_softmax = false; }},
      {"deepseek_v2", [](TransformerConfig& c) { c.moe.moe_router_topk_scaling_factor.reset(); }},
      {"deepseek_v2_groups", [](TransformerConfig& c) { c.moe.moe_router_group_best = 3; }},
      {"deepseek_v2_groups", [](TransformerConfig& c) { c.moe.moe_router_group_topk = 4; }},
      {"deepseek_v3", [](TransformerConfig& c) { c.mscale_all_dim = 1; }},
      {"deepseek_v3", [](TransformerConfig& c) { c.rotary_scaling_factor = 2; }},
      {"deepseek_v3", [](TransformerConfig& c) { c.moe.moe_router_group_topk = 4; }},
      {"deepseek_v3", [](TransformerConfig& c) { c.moe.moe_router_topk_scaling_factor = 1.0; }},
      {"gemma1", [](TransformerConfig& c) { c.embedding_scale.reset(); }},
      {"gemma2", [](TransformerConfig& c) { c.attn_logit_softcapping = 5; }},
      {"gemma2", [](TransformerConfig& c) { c.final_logit_softcapping.reset(); }},
      {"gemma3", [](TransformerConfig& c) { c.query_scale = 8; }},
      {"gemma3", [](TransformerConfig& c) { c.rotary_base_local = 1000; }},
      {"gemma3", [](TransformerConfig& c) { c.rotary_seq_len_interpolation_factor.reset(); }},
  };
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < 20; ++i) tokens.push_back(i * 7 % 53);
  for (const auto& [name, change] : cases) {
    const HfModel hf(hf_fixture(name));
    TransformerConfig changed = hf.config.model;
    change(changed);
    const auto logits = [&](const TransformerConfig& config) {
      return logits_of(config, *hf.tensors, tokens, DType::f32, test_device());
    };
    const LogitsDifference difference =
        compare_logits(logits(changed), logits(hf.config.model), 53);
    EXPECT_GT(difference.largest, 1e-3) << name;
    EXPECT_FALSE(LogitsTolerance::of(20).allows(difference)) << name;
  }
}

TEST(HfModel, ExportIsTheImportBitForBit) {
  for (const char* name : kHfFixtures) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const HfModel hf(hf_fixture(name));
    const auto native = std::make_shared<TensorsInMemory>(*hf.tensors);
    export_hf(folder / "out", native, {.model = hf.config.model, .max_shard_bytes = 6000});
    TensorsInMemory before = tensors_of(hf_fixture(name)), after = tensors_of(folder / "out");
    EXPECT_EQ(before.tensors(), after.tensors());  // names, types, shapes
    for (const std::string& tensor : before.names())
      EXPECT_EQ(before.bytes(tensor), after.bytes(tensor)) << tensor;
    EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));

    const HfModel again(folder / "out");  // and it is read back as the same
    EXPECT_TRUE(differences(*again.tensors, *native).empty());
  }
}

TEST(HfModel, Fp8BlocksAreReadAsWhatTheyMean) {
  const HfModel hf(hf_fixture("deepseek_v3_fp8"));
  const SafetensorsFile file(hf_fixture("deepseek_v3_fp8") / "logits.safetensors");
  const std::vector<double> ours = logits_of(
      hf.config.model, *hf.tensors, values<int64_t>(file.at("tokens")), DType::f32, test_device());
  const std::vector<float> theirs = values<float>(file.at("logits"));
  const std::vector<double> wide(theirs.begin(), theirs.end());
  EXPECT_LE(compare_logits(ours, wide, *hf.config.model.vocab_size).largest, 1e-4);
  const TensorInfo& info =
      hf.tensors->tensors().at("decoder.layers.0.self_attention.linear_q_up_proj.weight");
  EXPECT_EQ(info.dtype, DType::bf16);

  const TempFolder folder;  // an export has the values in full, and says nothing of FP8
  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model, .companions = hf_fixture("deepseek_v3_fp8")});
  const HfModel again(folder / "out");
  EXPECT_FALSE(again.config.fp8.has_value());
  EXPECT_TRUE(differences(*again.tensors, *hf.tensors).empty());
}

// As DeepSeek-V3 is released: layer 2, behind the last, predicts a token ahead. The library ignores
// it. Its numbers are those of layer 1, in another order.
TensorsInMemory with_layer_ahead() {
  TensorsInMemory tensors = tensors_of(hf_fixture("deepseek_v3"));
  const TensorInfos before = tensors.tensors();
  for (const auto& [name, info] : before) {
    if (!name.starts_with("model.layers.1.")) continue;
    std::vector<std::byte> bytes = tensors.bytes(name);
    std::ranges::rotate(bytes, bytes.begin() + size_of(info.dtype));
    tensors.set("model.layers.2." + name.substr(15), info, bytes);
  }
  const auto copy = [&](const char* to, const char* from) {
    tensors.set(to, before.at(from), tensors.bytes(from));
  };
  copy("model.layers.2.enorm.weight", "model.layers.0.input_layernorm.weight");
  copy("model.layers.2.hnorm.weight", "model.layers.1.input_layernorm.weight");
  copy("model.layers.2.shared_head.norm.weight", "model.norm.weight");
  copy("model.layers.2.embed_tokens.weight", "model.embed_tokens.weight");
  copy("model.layers.2.shared_head.head.weight", "lm_head.weight");
  TensorInfo wide = before.at("model.embed_tokens.weight");
  const int64_t h = wide.shape[1];
  wide.shape = {h, 2 * h};
  std::vector<std::byte> bytes = tensors.bytes("model.embed_tokens.weight");
  bytes.resize(size_t(2 * h * h * size_of(wide.dtype)), std::byte{1});
  tensors.set("model.layers.2.eh_proj.weight", wide, bytes);
  return tensors;
}

void write_with_layer_ahead(const Path& folder, const TensorsInMemory& tensors) {
  nlohmann::json config = fixture_config("deepseek_v3");
  config["num_nextn_predict_layers"] = 1;
  write_hf_folder(folder, tensors, tensors.names(), config, {});
}

TEST(HfModel, LayersForMultiTokenPredictionComeInAndGoOutBitForBit) {
  const TensorsInMemory tensors = with_layer_ahead();
  const TempFolder folder;
  write_with_layer_ahead(folder / "in", tensors);
  const HfModel hf(folder / "in");
  EXPECT_EQ(hf.config.model.mtp_num_layers, 1);
  EXPECT_TRUE(hf.tensors->tensors().contains("mtp.layers.0.eh_proj.weight"));
  EXPECT_TRUE(hf.tensors->tensors().contains("mtp.layers.0.final_layernorm.weight"));
  EXPECT_TRUE(
      hf.tensors->tensors().contains("mtp.layers.0.transformer_layer.mlp.router.expert_bias"));
  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model, .companions = folder / "in"});
  EXPECT_TRUE(differences(tensors, tensors_of(folder / "out")).empty());
  EXPECT_EQ(read_json_object(folder / "out/config.json")["num_nextn_predict_layers"], 1);
}

TEST(HfModel, LayersForMultiTokenPredictionMayBeLeftOut) {
  const HfModel without(hf_fixture("deepseek_v3"));
  const TempFolder folder;
  write_with_layer_ahead(folder / "mtp", with_layer_ahead());
  EXPECT_TRUE(
      differences(*HfModel(folder / "mtp", /*most_ahead=*/0).tensors, *without.tensors).empty());
  // The library saves the key, and not the layer.
  write_with_layer_ahead(folder / "key", tensors_of(hf_fixture("deepseek_v3")));
  EXPECT_EQ(HfModel(folder / "key").config.model.mtp_num_layers, 0);
  EXPECT_TRUE(differences(*HfModel(folder / "key").tensors, *without.tensors).empty());
}

TEST(HfModel, OtherFamiliesHaveNoPlaceForLayersAhead) {
  HfModel hf(hf_fixture("qwen3"));
  hf.config.model.mtp_num_layers = 1;
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { export_hf(folder / "out", hf.tensors, {.model = hf.config.model}); }),
              HasSubstr("there is no place for layers of multi-token prediction"));
}

// With them the logits are the library's: see above. So they are read, and used.
TEST(HfModel, ABiasOfAnExpertMovesTheLogits) {
  const HfModel hf(hf_fixture("deepseek_v3"));
  const std::string bias = "decoder.layers.1.mlp.router.expert_bias";
  TensorsInMemory unbiased(*hf.tensors);
  ASSERT_NE(unbiased.bytes(bias), std::vector<std::byte>(32));
  unbiased.set(bias, {DType::f32, {8}}, std::vector<std::byte>(32));
  const std::vector<int64_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto logits = [&](const TensorSource& source) {
    return logits_of(hf.config.model, source, tokens, DType::f32, test_device());
  };
  EXPECT_GT(compare_logits(logits(unbiased), logits(*hf.tensors), 53).largest, 1e-2);
}

TEST(HfModel, AFolderWithoutBiasesOfExpertsIsNotTheWholeModel) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("deepseek_v3"));
  tensors.erase("model.layers.1.mlp.gate.e_score_correction_bias");
  write_folder(folder / "bad", tensors, "deepseek_v3");
  EXPECT_THAT(error_of([&] { HfModel model(folder / "bad"); }),
              HasSubstr("missing: 1\n    model.layers.1.mlp.gate.e_score_correction_bias"));
}

// The library has them in fp32 in models of any type.
TEST(HfModel, BiasesOfExpertsAreNotConvertedWithTheWeights) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("deepseek_v3"));
  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model, .dtype = DType::bf16});
  const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  TensorsInMemory before = tensors_of(hf_fixture("deepseek_v3")),
                  after = tensors_of(folder / "out");
  EXPECT_EQ(after.bytes(bias), before.bytes(bias));
  for (const auto& [name, info] : after.tensors())
    EXPECT_EQ(info.dtype, name == bias ? DType::f32 : DType::bf16) << name;
  EXPECT_EQ(read_json_object(folder / "out/config.json")["torch_dtype"], "bfloat16");
}

TEST(HfModel, AModelWithoutBiasesOfExpertsIsWrittenWithZeros) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("deepseek_v3"));
  TransformerConfig model = hf.config.model;
  model.moe.moe_router_enable_expert_bias = false;
  const auto native = std::make_shared<TensorsInMemory>(*hf.tensors);
  native->erase("decoder.layers.1.mlp.router.expert_bias");
  export_hf(folder / "out", native, {.model = model});
  TensorsInMemory written = tensors_of(folder / "out");
  const std::string bias = "model.layers.1.mlp.gate.e_score_correction_bias";
  EXPECT_EQ(written.tensors().at(bias), (TensorInfo{DType::f32, {8}}));
  EXPECT_EQ(written.bytes(bias), std::vector<std::byte>(32));
}

TEST(HfModel, AMissingExpertIsNamed) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("qwen3_moe"));
  tensors.erase("model.layers.1.mlp.experts.5.up_proj.weight");
  write_folder(folder / "bad", tensors, "qwen3_moe");
  EXPECT_THAT(error_of([&] { HfModel model(folder / "bad"); }),
              HasSubstr("missing: 1\n    model.layers.1.mlp.experts.5.up_proj.weight"));
}

TEST(HfModel, TypesAreConvertedOnExportWhenAsked) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("qwen3"));
  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model, .dtype = DType::bf16});
  const HfFolder written(folder / "out");
  for (const auto& [name, info] : written.tensors()) EXPECT_EQ(info.dtype, DType::bf16) << name;
  EXPECT_EQ(read_json_object(folder / "out/config.json")["torch_dtype"], "bfloat16");
  const auto wide = std::make_shared<WidenedSource>(HfModel(folder / "out").tensors, DType::f32);
  const auto found = differences(*wide, *hf.tensors);
  ASSERT_FALSE(found.empty());
  for (const TensorDifference& difference : found) {
    const TensorStatistics numbers = statistics(*hf.tensors, difference.name);
    // bf16 keeps 8 bits, rounded to nearest.
    EXPECT_LE(difference.largest, std::max(-numbers.least, numbers.most) / 256) << difference.name;
  }
}

TEST(HfModel, CompanionFilesAndFurtherKeysGoAlong) {
  const TempFolder folder;
  std::filesystem::copy(hf_fixture("llama2"), folder / "in");
  write_file(folder / "in/tokenizer.json", "{\"a\": 1}");
  write_file(folder / "in/chat_template.jinja", "{{ x }}");
  const HfModel hf(folder / "in");
  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model, .companions = folder / "in"});
  EXPECT_EQ(read_file(folder / "out/tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(read_file(folder / "out/chat_template.jinja"), "{{ x }}");
  EXPECT_EQ(read_file(folder / "out/generation_config.json"),
            read_file(folder / "in/generation_config.json"));
  EXPECT_EQ(read_json_object(folder / "out/config.json")["pad_token_id"], 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "out/logits.safetensors"));
}

TEST(HfModel, AnExportDoesNotReplaceAFolderThatHoldsSomething) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("llama2"));
  EXPECT_THAT(error_of([&] {
                export_hf(folder.path(), std::make_shared<TensorsInMemory>(*hf.tensors),
                          {.model = hf.config.model});
                export_hf(folder.path(), std::make_shared<TensorsInMemory>(*hf.tensors),
                          {.model = hf.config.model});
              }),
              HasSubstr("is there already, and not empty"));
}

TEST(HfModel, NamesWithoutThePrefixAndOldBuffersAreTaken) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("gpt2"));
  for (const std::string& name : tensors.names())
    tensors.rename(name, name.substr(std::string("transformer.").size()));
  tensors.set("h.0.attn.bias", {DType::u8, {1, 1, 4, 4}}, std::vector<std::byte>(16));
  write_folder(folder / "old", tensors, "gpt2");
  EXPECT_TRUE(
      differences(*HfModel(folder / "old").tensors, *HfModel(hf_fixture("gpt2")).tensors).empty());
}

TEST(HfModel, ATiedHeadMayBeThereAgainButNotBeAnother) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("qwen3"));
  const TensorInfo info = tensors.tensors().at("model.embed_tokens.weight");
  tensors.set("lm_head.weight", info, tensors.bytes("model.embed_tokens.weight"));
  write_folder(folder / "same", tensors, "qwen3");
  HfModel(folder / "same").check_tied_head();
  tensors.bytes("lm_head.weight")[3] ^= std::byte{1};
  write_folder(folder / "other", tensors, "qwen3");
  EXPECT_THAT(error_of([&] { HfModel(folder / "other").check_tied_head(); }),
              HasSubstr("lm_head.weight is another matrix"));
}

TEST(HfModel, ANativeSourceThatLacksATensorIsNotExported) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("llama2"));
  const auto native = std::make_shared<TensorsInMemory>(*hf.tensors);
  native->erase("decoder.final_layernorm.weight");
  EXPECT_THAT(error_of([&] { export_hf(folder / "out", native, {.model = hf.config.model}); }),
              HasSubstr("missing: 1\n    decoder.final_layernorm.weight"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

}  // namespace
}  // namespace phx
