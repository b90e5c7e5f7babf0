#include "phalanx/cli/megatron_catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "phalanx/cli/pretrain_options.h"

namespace phx {
namespace {

struct MegatronFlag {
  std::string name, kind;  // "lr", "value"
};

// What Megatron-LM's own parser takes, as tests/data/megatron_flags.py lists it.
std::vector<MegatronFlag> megatron_flags() {
  std::ifstream in(std::string(PHX_TEST_DATA) + "/megatron_flags.txt");
  std::vector<MegatronFlag> flags;
  for (MegatronFlag flag; in >> flag.name >> flag.kind; flags.push_back(flag))
    flag.name = flag.name.substr(2);
  return flags;
}

TEST(MegatronCatalogue, EveryFlagOfMegatronIsInOneClass) {
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);  // throws when a name is in two classes
  for (const auto& [name, kind] : megatron_flags())
    EXPECT_TRUE(set.find(name) != nullptr || set.find_catalogued(name) != nullptr ||
                name == "yaml-cfg")
        << "--" << name << " is in no class";
  EXPECT_EQ(megatron_flags().size(), 876u);
}

// One that took too many or too few would shift all that follows it.
TEST(MegatronCatalogue, FlagsTakeAsManyValuesAsMegatrons) {
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);
  for (const auto& [name, kind] : megatron_flags()) {
    std::string ours = "value";  // --yaml-cfg
    if (const CatalogueEntry* entry = set.find_catalogued(name)) {
      ours = entry->arity.most == 0 ? "switch" : entry->arity.most == 1 ? "value" : "list";
    } else if (const Option* option = set.find(name)) {
      const bool means = std::ranges::any_of(
          option->switches, [&](const Option::Switch& meaning) { return meaning.flag == name; });
      const bool toggle = means || option->kind == Option::Kind::toggle;
      ours = toggle ? "switch" : option->kind == Option::Kind::list ? "list" : "value";
    }
    EXPECT_EQ(ours, kind) << "--" << name;
  }
}

TEST(MegatronCatalogue, EveryEntryHasAReasonAndEveryRefusalAWayOut) {
  for (const CatalogueEntry& entry : megatron_catalogue()) {
    EXPECT_FALSE(entry.reason.empty()) << entry.name;
    EXPECT_TRUE(entry.accepts.empty() || entry.kind == kRefused) << entry.name;
    EXPECT_TRUE(entry.kind == kImplied || !entry.hint.empty()) << entry.name;
  }
}

std::string refusal(const std::vector<std::string>& args) {
  return format_problems(parse_pretrain(args).report.problems);
}

// The flags of Megatron-LM's example scripts, without paths and ranks.
TEST(MegatronCatalogue, AScriptOfBertIsNoGpt) {
  const std::vector<std::string> script = {"--num-layers",
                                           "24",
                                           "--hidden-size",
                                           "1024",
                                           "--num-attention-heads",
                                           "16",
                                           "--seq-length",
                                           "512",
                                           "--max-position-embeddings",
                                           "512",
                                           "--attention-backend",
                                           "auto",
                                           "--micro-batch-size",
                                           "4",
                                           "--global-batch-size",
                                           "32",
                                           "--train-iters",
                                           "1000000",
                                           "--lr",
                                           "0.0001",
                                           "--fp16",
                                           "--data-path",
                                           "my-bert_text_sentence",
                                           "--vocab-file",
                                           "bert-vocab.txt",
                                           "--split",
                                           "949,50,1"};
  const std::string alone = refusal(script);
  EXPECT_NE(alone.find("--vocab-file bert-vocab.txt stands without --merge-file"),
            std::string::npos)
      << alone;
  EXPECT_NE(alone.find("BERT"), std::string::npos) << alone;
  std::vector<std::string> named = script;
  named.insert(named.end(), {"--tokenizer-type", "BertWordPieceLowerCase", "--bert-no-binary-head",
                             "--mask-prob", "0.15"});
  const std::string text = refusal(named);
  EXPECT_NE(text.find("--tokenizer-type BertWordPieceLowerCase: it is the tokenizer of BERT"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("--bert-no-binary-head"), std::string::npos) << text;
  EXPECT_NE(text.find("decoder-only GPT models"), std::string::npos) << text;
}

TEST(MegatronCatalogue, AScriptOfT5IsNoGpt) {
  const std::string text = refusal({"--encoder-num-layers",
                                    "12",
                                    "--decoder-num-layers",
                                    "12",
                                    "--hidden-size",
                                    "768",
                                    "--num-attention-heads",
                                    "12",
                                    "--kv-channels",
                                    "64",
                                    "--ffn-hidden-size",
                                    "3072",
                                    "--encoder-seq-length",
                                    "512",
                                    "--decoder-seq-length",
                                    "128",
                                    "--max-position-embeddings",
                                    "512",
                                    "--micro-batch-size",
                                    "64",
                                    "--global-batch-size",
                                    "512",
                                    "--lr",
                                    "0.0001",
                                    "--train-iters",
                                    "1000000",
                                    "--bf16",
                                    "--vocab-extra-ids",
                                    "100",
                                    "--data-path",
                                    "my-t5",
                                    "--vocab-file",
                                    "bert-large-cased-vocab.txt",
                                    "--tokenizer-type",
                                    "BertWordPieceCase",
                                    "--split",
                                    "99982,9,9"});
  for (const char* flag : {"--encoder-num-layers", "--decoder-num-layers", "--decoder-seq-length",
                           "--vocab-extra-ids", "BERT, T5", "BertWordPieceCase"})
    EXPECT_NE(text.find(flag), std::string::npos) << flag << "\n" << text;
}

}  // namespace
}  // namespace phx
