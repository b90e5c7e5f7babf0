// What must hold between the options of a model: each rule with a model that breaks it alone, and
// one beside it that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/options.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {
namespace {

using Flags = std::vector<std::string>;
using ::testing::HasSubstr;

// The problems of a small sound model with these flags beside, one a line with its hint.
std::string problems_of(const Flags& flags) {
  Flags args = {"--num-layers",
                "4",
                "--hidden-size",
                "64",
                "--num-attention-heads",
                "4",
                "--seq-length",
                "32",
                "--max-position-embeddings",
                "32"};
  args.insert(args.end(), flags.begin(), flags.end());
  TransformerConfig config;
  OptionSet options;
  options.add("Model", config);
  ParseReport report = options.parse(args);
  options.check(transformer_rules(config), report);
  std::string text;
  for (const Problem& problem : report.problems) text += problem.text + " | " + problem.hint + "\n";
  return text;
}

struct Case {
  Flags wrong;
  std::string said;
  Flags right;
};

const Case kCases[] = {
    {{"--hidden-size", "66"},
     "--hidden-size 66 is not a multiple of --num-attention-heads 4 | 64 and 68",
     {"--hidden-size", "66", "--kv-channels", "16"}},
    {{"--group-query-attention", "--num-query-groups", "3"},
     "--num-query-groups 3 does not divide --num-attention-heads 4 | these do: 1, 2, 4",
     {"--group-query-attention", "--num-query-groups", "2"}},
    {{"--num-query-groups", "2"},
     "--num-query-groups 2 has no effect without --group-query-attention",
     {"--num-query-groups", "4"}},
    {{"--seq-length", "33"}, "--seq-length 33", {"--seq-length", "31"}},
    {{"--swiglu", "--squared-relu"}, "an MLP has one activation function", {"--squared-relu"}},
    {{"--window-attn-skip-freq", "2"},
     "it says which layers have a window",
     {"--window-attn-skip-freq", "2", "--window-size", "8,0"}},
    {{"--window-size", "8,0", "--window-attn-skip-freq", "[1,0,1]"},
     "has 3 entries, but --num-layers is 4 | a list has one entry a layer",
     {"--window-size", "8,0", "--window-attn-skip-freq", "[1,0,1,0]"}},
    {{"--position-embedding-type", "yarn"},
     "--position-embedding-type yarn requires --yarn-original-max-position-embeddings",
     {"--position-embedding-type", "yarn", "--yarn-original-max-position-embeddings", "16"}},
    {{"--use-rope-scaling"},
     "--use-rope-scaling has no effect with --position-embedding-type learned_absolute",
     {"--use-rope-scaling", "--position-embedding-type", "rope"}},
    {{"--use-rope-scaling", "--position-embedding-type", "yarn",
      "--yarn-original-max-position-embeddings", "16"},
     "both stretch the rotary frequencies",
     {"--use-rope-scaling", "--position-embedding-type", "rope"}},
    {{"--vocab-size", "100", "--padded-vocab-size", "99"},
     "--padded-vocab-size 99 is less than --vocab-size 100",
     {"--vocab-size", "100", "--padded-vocab-size", "100"}},
    {{"--qk-layernorm"},
     "--qk-layernorm needs --normalization RMSNorm, but it is LayerNorm",
     {"--qk-layernorm", "--normalization", "RMSNorm"}},
    {{"--qk-layernorm-all-heads"},
     "it says over which channels q and k are normalised",
     {"--qk-layernorm-all-heads", "--qk-layernorm", "--normalization", "RMSNorm"}},
    {{"--window-size", "8,2"},
     "--window-size 8,2 looks 2 keys ahead, but attention is causal",
     {"--window-size", "8,-1"}},
    {{"--position-embedding-type", "rope", "--kv-channels", "15"},
     "--kv-channels 15 is odd, but rotation takes channels in pairs | 14 and 16",
     {"--kv-channels", "15"}},
    {{"--position-embedding-type", "rope", "--rotary-percent", "0.1"},
     "leaves no pair of channels to rotate | use 0.125 or more",
     {"--position-embedding-type", "rope", "--rotary-percent", "0.125"}},
    {{"--swiglu", "--hidden-size", "16"},
     "--swiglu with --hidden-size 16 makes an MLP of width 0",
     {"--swiglu", "--hidden-size", "24"}},
    {{"--hidden-size", "1048576", "--num-layers", "4"},
     "parameters; a model has fewer than 2^45, about 3.5e13",
     {"--hidden-size", "1048576", "--num-layers", "2"}},
};

TEST(TransformerRules, ASoundModelHasNoProblem) { EXPECT_EQ(problems_of({}), ""); }

TEST(TransformerRules, EachRuleNamesWhatBreaksItAndLetsWhatDoesNotPass) {
  for (const Case& one : kCases) {
    const std::string said = problems_of(one.wrong);
    EXPECT_THAT(said, HasSubstr(one.said));
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    EXPECT_EQ(problems_of(one.right), "") << one.said;
  }
}

}  // namespace
}  // namespace phx
