#include "phalanx/transformer/transformer_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/base/options.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

TransformerConfig llama3_8b() {
  TransformerConfig config;
  config.num_layers = 32;
  config.hidden_size = 4096;
  config.ffn_hidden_size = 14336;
  config.num_attention_heads = 32;
  config.group_query_attention = true;
  config.num_query_groups = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  config.swiglu = true;
  config.add_bias_linear = false;
  return config;
}

// The problems that flags beside a small sound model lead to.
ParseReport parse(std::vector<std::string> extra, TransformerConfig* out = nullptr) {
  std::vector<std::string> args = {"--num-layers",
                                   "4",
                                   "--hidden-size",
                                   "64",
                                   "--num-attention-heads",
                                   "4",
                                   "--seq-length",
                                   "32",
                                   "--max-position-embeddings",
                                   "32"};
  args.insert(args.end(), extra.begin(), extra.end());
  TransformerConfig config;
  OptionSet options;
  options.add("Model", config);
  ParseReport report = options.parse(args);
  options.check(transformer_rules(config), report);
  if (out != nullptr) *out = config;
  return report;
}

TEST(TransformerConfig, HeadSizeAndGroupsFollowFromHeads) {
  TransformerConfig config = llama3_8b();
  EXPECT_EQ(config.head_dim(), 128);
  EXPECT_EQ(config.query_groups(), 8);
  config.group_query_attention = false;
  EXPECT_EQ(config.query_groups(), 32);
  config.kv_channels = 256;
  EXPECT_EQ(config.head_dim(), 256);
}

TEST(TransformerConfig, FfnIsFourHiddenOrTwoThirdsOfItWhenGated) {
  TransformerConfig config;
  config.hidden_size = 4096;
  EXPECT_EQ(config.ffn_size(), 16384);
  config.swiglu = true;
  EXPECT_EQ(config.ffn_size(), 10880);  // 16384 * 2/3 = 10922.67, down to a multiple of 64
  config.ffn_hidden_size = 11008;
  EXPECT_EQ(config.ffn_size(), 11008);
}

TEST(TransformerConfig, VocabularyIsPaddedToAMultipleTimesTensorParallel) {
  TransformerConfig config;
  config.vocab_size = 50257;
  EXPECT_EQ(config.padded_vocab(), 50304);
  EXPECT_EQ(config.padded_vocab(8), 51200);
  config.padded_vocab_size = 50432;
  EXPECT_EQ(config.padded_vocab(8), 50432);
  config.vocab_size.reset();
  config.padded_vocab_size.reset();
  EXPECT_THROW(config.padded_vocab(), Error);
}

TEST(TransformerConfig, QkvHasABiasWithTheOthersOrOnItsOwn) {
  TransformerConfig config;
  EXPECT_TRUE(config.has_linear_bias() && config.has_qkv_bias());
  config.add_bias_linear = false;
  EXPECT_FALSE(config.has_linear_bias() || config.has_qkv_bias());
  config.add_qkv_bias = true;
  EXPECT_FALSE(config.has_linear_bias());
  EXPECT_TRUE(config.has_qkv_bias());
}

TEST(TransformerConfig, EveryNthLayerSkipsTheWindow) {
  TransformerConfig config = llama3_8b();
  EXPECT_FALSE(config.layer_window(0).has_value());
  config.window_size = WindowSize{127, 0};
  EXPECT_EQ(config.layer_window(31), (WindowSize{127, 0}));
  config.window_attn_skip_freq = FrequencyPattern::every_nth(6);
  EXPECT_TRUE(config.layer_window(0).has_value());
  EXPECT_TRUE(config.layer_window(4).has_value());
  EXPECT_FALSE(config.layer_window(5).has_value());
  EXPECT_TRUE(config.layer_window(6).has_value());
  config.window_attn_skip_freq = FrequencyPattern::parse("[0]*31+[1]");
  EXPECT_FALSE(config.layer_window(0).has_value());
  EXPECT_TRUE(config.layer_window(31).has_value());
}

TEST(TransformerConfig, WindowedLayersHaveTheirOwnRotaryBase) {
  TransformerConfig config = llama3_8b();
  config.rotary_base = 1e6;
  config.rotary_base_local = 1e4;
  config.window_size = WindowSize{511, 0};
  config.window_attn_skip_freq = FrequencyPattern::every_nth(2);
  EXPECT_EQ(config.layer_rotary_base(0), 1e4);
  EXPECT_EQ(config.layer_rotary_base(1), 1e6);
  EXPECT_FALSE(config.layer_stretches_rope(0));
  EXPECT_TRUE(config.layer_stretches_rope(1));
}

TEST(TransformerConfig, LayersWithoutRopeAreEveryNthOrListed) {
  TransformerConfig config = llama3_8b();
  EXPECT_TRUE(config.layer_uses_rope(3));
  config.no_rope_freq = FrequencyPattern::every_nth(4);
  EXPECT_TRUE(config.layer_uses_rope(2));
  EXPECT_FALSE(config.layer_uses_rope(3));
  config.position_embedding_type = PositionEmbedding::learned_absolute;
  EXPECT_FALSE(config.layer_uses_rope(2));
}

TEST(TransformerConfig, QueryScaleReplacesTheHeadSizeUnderTheRoot) {
  TransformerConfig config = llama3_8b();
  EXPECT_DOUBLE_EQ(config.softmax_scale(), 1 / std::sqrt(128.0));
  config.query_scale = 144.0;
  EXPECT_DOUBLE_EQ(config.softmax_scale(), 1.0 / 12);
}

TEST(TransformerConfig, RotaryPercentKeepsAnEvenNumberOfChannels) {
  TransformerConfig config = llama3_8b();
  EXPECT_EQ(config.rotary_dim(), 128);
  config.rotary_percent = 0.26;  // 33.28 channels
  EXPECT_EQ(config.rotary_dim(), 32);
}

TEST(TransformerConfig, ResolveWritesWhatUnsetFieldsComeTo) {
  TransformerConfig config = llama3_8b();
  config.ffn_hidden_size.reset();
  config.group_query_attention = false;
  config.vocab_size = 1000;
  config.resolve();
  EXPECT_EQ(config.ffn_hidden_size, 10880);
  EXPECT_EQ(config.kv_channels, 128);
  EXPECT_EQ(config.num_query_groups, 32);
  EXPECT_EQ(config.padded_vocab_size, 1024);
}

TEST(TransformerConfig, OldSpellingsAreTaken) {
  TransformerConfig config;
  const ParseReport report = parse({"--use-rotary-position-embeddings", "--layernorm-epsilon",
                                    "1e-6", "--disable-bias-linear", "--window-size", "(15, 0)"},
                                   &config);
  EXPECT_TRUE(report.ok()) << format_problems(report.problems);
  EXPECT_EQ(config.position_embedding_type, PositionEmbedding::rope);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
  EXPECT_FALSE(config.has_linear_bias());
  EXPECT_EQ(config.window_size, (WindowSize{15, 0}));
}

TEST(TransformerConfig, HiddenSizeIsAMultipleOfHeadsUnlessTheHeadSizeIsGiven) {
  const ParseReport report = parse({"--hidden-size", "66"});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].text,
            "--hidden-size 66 is not a multiple of --num-attention-heads 4");
  EXPECT_EQ(report.problems[0].hint, "64 and 68 are the nearest that are");
  EXPECT_TRUE(parse({"--hidden-size", "66", "--kv-channels", "16"}).ok());
}

TEST(TransformerConfig, QueryGroupsDivideTheHeads) {
  ParseReport report = parse({"--group-query-attention", "--num-query-groups", "3"});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].text,
            "--num-query-groups 3 does not divide --num-attention-heads 4");
  EXPECT_EQ(report.problems[0].hint, "these do: 1, 2, 4");
  report = parse({"--num-query-groups", "2"});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].text,
            "--num-query-groups 2 has no effect without --group-query-attention");
}

TEST(TransformerConfig, SequencesFitThePositions) {
  const ParseReport report = parse({"--seq-length", "64"});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].text, "--seq-length 64 is more than --max-position-embeddings 32");
}

TEST(TransformerConfig, PatternListsHaveOneEntryALayer) {
  const ParseReport report =
      parse({"--window-size", "7,0", "--window-attn-skip-freq", "[1]*3", "--no-rope-freq", "[0]*5",
             "--position-embedding-type", "rope"});
  ASSERT_EQ(report.problems.size(), 2u);
  EXPECT_EQ(report.problems[0].text,
            "--window-attn-skip-freq [1]*3 has 3 entries, but --num-layers is 4");
  EXPECT_EQ(report.problems[1].flag, "--no-rope-freq");
}

// The only problem that these flags lead to.
Problem problem_of(std::vector<std::string> extra) {
  const ParseReport report = parse(std::move(extra));
  EXPECT_EQ(report.problems.size(), 1u) << format_problems(report.problems);
  return report.problems.empty() ? Problem{} : report.problems[0];
}

TEST(TransformerConfig, NormsOfQueriesAndKeysAreRmsNorms) {
  const Problem problem = problem_of({"--qk-layernorm"});
  EXPECT_EQ(problem.text, "--qk-layernorm needs --normalization RMSNorm, but it is LayerNorm");
  EXPECT_TRUE(parse({"--qk-layernorm", "--normalization", "RMSNorm"}).ok());
}

TEST(TransformerConfig, AWindowDoesNotLookAhead) {
  const Problem problem = problem_of({"--window-size", "7,5"});
  EXPECT_EQ(problem.text,
            "--window-size 7,5 looks 5 keys ahead, but attention is causal: the right number "
            "should be 0 or -1");
  EXPECT_EQ(problem.hint, "use --window-size 7,0");
  EXPECT_TRUE(parse({"--window-size", "7,-1"}).ok());
}

TEST(TransformerConfig, StretchingGoesFromLowToHighFrequencies) {
  EXPECT_EQ(problem_of({"--use-rope-scaling", "--position-embedding-type", "rope",
                        "--rope-scaling-low-freq-factor", "4"})
                .text,
            "--rope-scaling-low-freq-factor 4 is not below --rope-scaling-high-freq-factor 4");
  EXPECT_EQ(problem_of({"--yarn-beta-slow", "33"}).flag, "--yarn-beta-slow");
}

TEST(TransformerConfig, RotationTakesChannelsInPairs) {
  Problem problem = problem_of({"--position-embedding-type", "rope", "--kv-channels", "15"});
  EXPECT_EQ(problem.text, "--kv-channels 15 is odd, but rotation takes channels in pairs");
  EXPECT_EQ(problem.hint, "14 and 16 are the nearest that are");
  problem = problem_of({"--position-embedding-type", "rope", "--hidden-size", "60"});
  EXPECT_EQ(problem.text,
            "--hidden-size 60 / --num-attention-heads 4 = 15 is odd, but rotation takes channels "
            "in pairs");
  EXPECT_TRUE(problem.hint.starts_with("56 and 64 are the nearest that are")) << problem.hint;
  EXPECT_TRUE(parse({"--kv-channels", "15"}).ok());
}

TEST(TransformerConfig, RotaryPercentLeavesAtLeastAPair) {
  const Problem problem =
      problem_of({"--position-embedding-type", "rope", "--rotary-percent", "0.1"});
  EXPECT_EQ(problem.text,
            "--rotary-percent 0.1 of --hidden-size 64 / --num-attention-heads 4 = 16 leaves no "
            "pair of channels to rotate");
  EXPECT_EQ(problem.hint, "use 0.125 or more, or --position-embedding-type none");
  EXPECT_TRUE(parse({"--position-embedding-type", "rope", "--rotary-percent", "0.125"}).ok());
  EXPECT_TRUE(parse({"--rotary-percent", "0.1"}).ok());
}

TEST(TransformerConfig, AnMlpWithoutWidthIsRefused) {
  const Problem problem = problem_of({"--swiglu", "--hidden-size", "16"});
  EXPECT_EQ(problem.text,
            "--swiglu with --hidden-size 16 makes an MLP of width 0: 8/3 of it, rounded down to a "
            "multiple of 64");
  EXPECT_EQ(problem.hint, "set --ffn-hidden-size, or use a --hidden-size of 24 or more");
  EXPECT_TRUE(parse({"--swiglu", "--hidden-size", "16", "--ffn-hidden-size", "40"}).ok());
  EXPECT_TRUE(parse({"--swiglu", "--hidden-size", "24"}).ok());
  EXPECT_TRUE(parse({"--hidden-size", "16"}).ok());
}

TEST(TransformerConfig, AbsurdSizesAreRefused) {
  EXPECT_EQ(problem_of({"--num-layers", "100001"}).text,
            "--num-layers 100001 should be between 1 and 100000");
  EXPECT_EQ(problem_of({"--hidden-size", "1048580"}).text,
            "--hidden-size 1048580 should be between 1 and 1048576");
  EXPECT_EQ(problem_of({"--vocab-size", "2147483648"}).text,
            "--vocab-size 2147483648 should be between 1 and 2147483647");
  EXPECT_EQ(problem_of({"--max-position-embeddings", "2147483648"}).flag,
            "--max-position-embeddings");
}

TEST(TransformerConfig, ParametersStayBelowTwoToTheFortyFifth) {
  // A layer has 4 h^2 weights in attention and 8 h^2 in the MLP: 12 * 2^40 at h = 2^20. Beside the
  // layers there are 128 rows for the padded vocabulary and 32 for positions.
  const std::vector<std::string> wide = {"--hidden-size", "1048576", "--num-layers"};
  std::vector<std::string> two = wide, three = wide;
  two.push_back("2");
  three.push_back("3");
  EXPECT_TRUE(parse(two).ok());
  const Problem problem = problem_of(three);
  EXPECT_EQ(problem.text,
            "--num-layers 3 of --hidden-size 1048576 and --ffn-hidden-size 4194304 make about "
            "3.95826e+13 parameters; a model has fewer than 2^45, about 3.5e13");
  EXPECT_EQ(problem.hint, "up to 2 such layers fit");
  EXPECT_EQ(problem_of({"--hidden-size", "1048576", "--num-layers", "100000",
                        "--num-attention-heads", "1048576", "--kv-channels", "1048576"})
                .hint,
            "a single such layer, or the vocabulary, is too large already");
}

TEST(TransformerConfig, EveryRuleIsReportedAtOnce) {
  const ParseReport report =
      parse({"--swiglu", "--squared-relu", "--seq-length", "33", "--position-embedding-type",
             "yarn", "--padded-vocab-size", "10", "--vocab-size", "11"});
  std::vector<std::string> flags;
  for (const Problem& problem : report.problems) flags.push_back(problem.flag);
  EXPECT_EQ(flags, (std::vector<std::string>{"--seq-length", "--swiglu",
                                             "--yarn-original-max-position-embeddings",
                                             "--padded-vocab-size"}));
}

TEST(TransformerConfig, ChoicesOfOtherModelsAreRefusedWithTheReason) {
  const ParseReport report = parse({"--position-embedding-type", "mrope"});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].kind, ProblemKind::refused);
  EXPECT_EQ(report.problems[0].text,
            "--position-embedding-type mrope: multimodal positions are not in this build yet");
}

}  // namespace
}  // namespace phx
