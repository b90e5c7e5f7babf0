// The folders of tests/data/hf were written by the transformers library, with the logits that it
// computes (scripts/make_hf_fixtures.py).
#include "phalanx/convert/hf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "convert/tensors_in_memory.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/convert/logits.h"
#include "phalanx/convert/rearranged_source.h"
#include "phalanx/convert/widened_source.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::test_device;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <class T>
std::vector<T> values(const SafetensorsFile::Tensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

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

TEST(HfModel, ALongPromptTellsRightFromWrong) {
  const HfModel hf(hf_fixture("llama_long"));
  const SafetensorsFile file(hf_fixture("llama_long") / "logits.safetensors");
  const std::vector<float> floats = values<float>(file.at("logits"));
  const std::vector<double> theirs(floats.begin(), floats.end());
  const auto against_theirs = [&](const TransformerConfig& config) {
    return compare_logits(logits_of(config, *hf.tensors, values<int64_t>(file.at("tokens")),
                                    DType::f32, test_device()),
                          theirs, 24);
  };
  const LogitsTolerance tolerance = LogitsTolerance::of(512);
  const LogitsDifference right = against_theirs(hf.config.model);
  EXPECT_GT(right.largest, 1e-4);  // the difference that RoPE in fp32 makes
  EXPECT_TRUE(tolerance.allows(right)) << right.relative << " " << right.divergence;
  TransformerConfig base = hf.config.model, epsilon = hf.config.model;
  base.rotary_base = 10100;
  epsilon.norm_epsilon = 1e-6;
  EXPECT_FALSE(tolerance.allows(against_theirs(base)));
  EXPECT_FALSE(tolerance.allows(against_theirs(epsilon)));
}

// Probabilities 1/2, 1/2 against 1/3, 2/3: (ln 3/2 + ln 3/4) / 2. A difference of 0.5 against 5.
TEST(HfModel, LogitsAreComparedByDivergenceAndRelativeError) {
  const double ln2 = std::log(2.0);
  const std::vector<double> a = {0, ln2}, b = {0, 0}, c = {3, 4.5}, d = {3, 4};
  EXPECT_NEAR(compare_logits(a, b, 2).divergence, 0.5 * std::log(1.125), 1e-15);
  EXPECT_NEAR(compare_logits(c, d, 2).relative, 0.1, 1e-15);
  EXPECT_EQ(compare_logits(c, d, 2).largest, 0.5);
  EXPECT_EQ(compare_logits(b, b, 2).divergence, 0);
  const std::vector<double> broken = {0, std::nan("")};
  EXPECT_FALSE(LogitsTolerance::of(1).allows(compare_logits(broken, b, 2)));
  EXPECT_FALSE(LogitsTolerance::of(1).allows(compare_logits(b, broken, 2)));
}

// All tensors of a folder, in memory.
TensorsInMemory tensors_of(const Path& folder) { return TensorsInMemory(*open_hf_tensors(folder)); }

void write_folder(const Path& folder, const TensorsInMemory& tensors,
                  const std::string& config_of) {
  write_hf_folder(folder, tensors, tensors.names(),
                  read_json_object(hf_fixture(config_of) / "config.json"), {});
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

// FP8 blocks, as DeepSeek-V3 was released; the library computed the logits from what they mean.
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

TEST(HfModel, LayersForMultiTokenPredictionAreLeftOut) {
  TensorsInMemory tensors = tensors_of(hf_fixture("deepseek_v3"));
  tensors.set("model.layers.2.enorm.weight", {DType::f32, {16}}, std::vector<std::byte>(64));
  const TempFolder folder;
  write_folder(folder / "mtp", tensors, "deepseek_v3");
  EXPECT_TRUE(
      differences(*HfModel(folder / "mtp").tensors, *HfModel(hf_fixture("deepseek_v3")).tensors)
          .empty());
}

TEST(HfModel, BiasesOfExpertsThatAreNotZeroAreRefusedAsLongAsTheRouterHasNone) {
  TensorsInMemory tensors = tensors_of(hf_fixture("deepseek_v3"));
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  std::vector<std::byte> bytes(32);
  bytes[3] = std::byte{0x3f};
  tensors.set(name, {DType::f32, {8}}, bytes);
  const TempFolder folder;
  write_folder(folder / "biased", tensors, "deepseek_v3");
  EXPECT_THAT(error_of([&] { HfModel{folder / "biased"}; }),
              AllOf(HasSubstr(name), HasSubstr("the router of this build has no bias")));
}

TEST(HfModel, AnyBoxIsThatPartOfTheTensor) {
  std::mt19937 random(1);
  for (const char* name : {"gpt2", "llama2", "qwen2_moe", "deepseek_v3_fp8"}) {
    const HfModel hf(hf_fixture(name));
    TensorsInMemory whole(*hf.tensors);
    for (const auto& [tensor, info] : hf.tensors->tensors()) {
      for (int i = 0; i < 20; ++i) {
        const Box box = random_box(info.shape, random);
        std::vector<std::byte> part(size_t(box.numel() * size_of(info.dtype))), expected(part);
        hf.tensors->read(tensor, box, part);
        whole.read(tensor, box, expected);
        ASSERT_EQ(part, expected) << name << " " << tensor;
      }
    }
  }
}

TEST(HfModel, AnyBoxOfAnExportIsThatPartOfTheTensor) {
  const TempFolder folder;
  std::mt19937 random(2);
  const HfModel hf(hf_fixture("gpt2"));
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, hf.config.model);
  const auto theirs =
      RearrangedSource::megatron_as_hf(std::make_shared<TensorsInMemory>(*hf.tensors), pairs, "x");
  TensorsInMemory whole = tensors_of(hf_fixture("gpt2"));
  for (const auto& [tensor, info] : theirs->tensors()) {
    for (int i = 0; i < 20; ++i) {
      const Box box = random_box(info.shape, random);
      std::vector<std::byte> part(size_t(box.numel() * size_of(info.dtype))), expected(part);
      theirs->read(tensor, box, part);
      whole.read(tensor, box, expected);
      ASSERT_EQ(part, expected) << tensor;
    }
  }
}

// Llama of 4 heads in 2 groups of size 4: rows of q, k and v by hand.
TEST(HfModel, QkvRowsGoGroupByGroup) {
  const HfModel hf(hf_fixture("llama2"));
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, hf.config.model);
  const auto pair = std::ranges::find(pairs, "decoder.layers.1.self_attention.linear_qkv.weight",
                                      &TensorPair::ours);
  ASSERT_NE(pair, pairs.end());
  ASSERT_EQ(pair->hf.size(), 3u);
  EXPECT_EQ(pair->hf[1].name, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(pair->hf[1].shape, (std::vector<int64_t>{8, 16}));
  std::vector<std::array<int64_t, 4>> blocks;
  for (const RowBlock& block : pair->blocks)
    blocks.push_back({int64_t(block.hf), block.our_row, block.hf_row, block.count});
  EXPECT_EQ(
      blocks,
      (std::vector<std::array<int64_t, 4>>{
          {0, 0, 0, 8}, {1, 8, 0, 4}, {2, 12, 0, 4}, {0, 16, 8, 8}, {1, 24, 4, 4}, {2, 28, 4, 4}}));
}

// Four experts of width 24: each one's gate, then its up projection, then the next expert's.
TEST(HfModel, ExpertsStandOneAfterTheOther) {
  const HfModel hf(hf_fixture("mixtral"));
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, hf.config.model);
  const auto fc1 =
      std::ranges::find(pairs, "decoder.layers.1.mlp.experts.linear_fc1.weight", &TensorPair::ours);
  const auto fc2 =
      std::ranges::find(pairs, "decoder.layers.1.mlp.experts.linear_fc2.weight", &TensorPair::ours);
  ASSERT_NE(fc1, pairs.end());
  ASSERT_NE(fc2, pairs.end());
  ASSERT_EQ(fc1->hf.size(), 8u);
  ASSERT_EQ(fc2->hf.size(), 4u);
  EXPECT_EQ(fc1->our_shape, (std::vector<int64_t>{192, 16}));
  EXPECT_EQ(fc1->hf[5].name, "model.layers.1.block_sparse_moe.experts.2.w3.weight");
  EXPECT_EQ(fc1->hf[5].shape, (std::vector<int64_t>{24, 16}));
  EXPECT_EQ(fc1->blocks.at(5).our_row, 120);
  EXPECT_EQ(fc2->hf[3].name, "model.layers.1.block_sparse_moe.experts.3.w2.weight");
  EXPECT_EQ(fc2->hf[3].shape, (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(fc2->blocks.at(3).our_row, 48);
}

TEST(HfModel, ExpertsMayBeInOneTensor) {
  const TempFolder folder;
  const HfModel hf(hf_fixture("mixtral_stacked"));
  const SafetensorsFile file(hf_fixture("mixtral_stacked") / "logits.safetensors");
  const std::vector<float> theirs = values<float>(file.at("logits"));
  const std::vector<double> ours = logits_of(
      hf.config.model, *hf.tensors, values<int64_t>(file.at("tokens")), DType::f32, test_device());
  const std::vector<double> wide(theirs.begin(), theirs.end());
  EXPECT_LE(compare_logits(ours, wide, 53).largest, 1e-4);

  export_hf(folder / "out", std::make_shared<TensorsInMemory>(*hf.tensors),
            {.model = hf.config.model});
  EXPECT_TRUE(tensors_of(folder / "out")
                  .tensors()
                  .contains("model.layers.0.block_sparse_moe.experts.3.w2.weight"));
  EXPECT_TRUE(differences(*HfModel(folder / "out").tensors, *hf.tensors).empty());
}

TEST(HfModel, AStackOfExpertsThatIsNoneIsRefused) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("mixtral_stacked"));
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj";
  TensorInfo info = tensors.tensors().at(name);
  info.shape = {info.shape[0] * info.shape[1], info.shape[2]};
  tensors.set(name, info, tensors.bytes(name));
  write_folder(folder / "flat", tensors, "mixtral_stacked");
  EXPECT_THAT(error_of([&] { HfModel model(folder / "flat"); }),
              HasSubstr(name + " should be one matrix for each expert"));
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

TEST(HfModel, MissingMisshapenAndUnexpectedTensorsAreAllNamed) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("llama2"));
  tensors.rename("model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.down_prj.weight");
  TensorInfo norm = tensors.tensors().at("model.norm.weight");
  norm.shape = {4, 4};
  tensors.set("model.norm.weight", norm, tensors.bytes("model.norm.weight"));
  write_folder(folder / "bad", tensors, "llama2");
  EXPECT_THAT(
      error_of([&] { HfModel model(folder / "bad"); }),
      AllOf(HasSubstr("missing: 1\n    model.layers.1.mlp.down_proj.weight (nearest: "
                      "model.layers.1.mlp.down_prj.weight)"),
            HasSubstr("model.norm.weight is [4, 4] there, but the model's config makes it [16]"),
            HasSubstr("nothing asks for: 1\n    model.layers.1.mlp.down_prj.weight")));
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

TEST(HfFolder, AShardThatIsNotThereOrHoldsOtherTensorsIsNamed) {
  const TempFolder folder;
  std::filesystem::copy(hf_fixture("llama3"), folder / "a");
  const Path index = folder / "a/model.safetensors.index.json";
  nlohmann::json json = read_json_object(index);
  const std::string last = json["weight_map"]["model.norm.weight"];
  const std::string text = read_file(index);

  json["weight_map"]["model.extra.weight"] = last;
  write_file(index, json.dump());
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }),
              AllOf(HasSubstr(last), HasSubstr("has no tensor model.extra.weight")));
  json["weight_map"].erase("model.extra.weight");
  json["weight_map"].erase("model.norm.weight");
  write_file(index, json.dump());
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }),
              HasSubstr("holds model.norm.weight, which"));
  json["weight_map"]["model.norm.weight"] = "../outside.safetensors";
  write_file(index, json.dump());
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }), HasSubstr("no name of a file"));
  write_file(index, text);
  std::filesystem::remove(folder / "a" / last);
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }),
              AllOf(HasSubstr(last), HasSubstr("is the download complete?")));
}

TEST(HfWriter, SizesAreReadAsTheLibraryWritesThem) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("1.5MB"), 1'500'000);
  EXPECT_EQ(parse_size("2KiB"), 2048);
  EXPECT_EQ(parse_size("300"), 300);
  for (const char* bad : {"", "GB", "5 GB", "5XB", "-1GB", "0"})
    EXPECT_THAT(error_of([&] { parse_size(bad); }), HasSubstr("is no size")) << bad;
}

}  // namespace
}  // namespace phx
