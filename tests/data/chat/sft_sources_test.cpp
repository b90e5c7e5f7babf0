#include "phalanx/data/chat/sft_sources.h"

#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"
#include "text/word_tokenizer.h"

namespace phx {
namespace {

// Ten plain chats, each of its own question.
std::string ten_lines() {
  std::string lines;
  for (char c = 'a'; c < 'k'; ++c)
    lines += std::string("{\"prompt\": \"") + c + "\", \"completion\": \" yes\"}\n";
  return lines;
}

struct Chats {
  Chats() {
    write_file(folder / "chats.jsonl", ten_lines());
    data.data_path = {(folder / "chats.jsonl").string()};
  }
  auto make() { return make_sft_datasets(sft, data, tokenizer, {.seq_length = 8}); }

  TempFolder folder;
  SftConfig sft;
  DataConfig data;
  WordTokenizer tokenizer;
};

TEST(SftSources, LinesAreDividedBySplit) {
  Chats chats;
  chats.data.split = "7,2,1";
  const auto parts = chats.make();
  EXPECT_EQ(parts[0]->counts().conversations, 7);
  EXPECT_EQ(parts[1]->counts().conversations, 2);
  EXPECT_EQ(parts[2]->counts().conversations, 1);
  Sample sample;
  parts[1]->sample(0, sample);
  EXPECT_EQ(chats.tokenizer.token_text(sample.tokens[0]), "h") << "the eighth line";
}

TEST(SftSources, TheLastShareReachesTheEndWhateverTheSumIsRoundedTo) {
  Chats chats;
  chats.data.split = "1,1,1";  // thirds
  const auto parts = chats.make();
  EXPECT_EQ(parts[0]->counts().conversations + parts[1]->counts().conversations +
                parts[2]->counts().conversations,
            10);
  chats.data.split = "1";
  EXPECT_EQ(chats.make()[0]->counts().conversations, 10);
  EXPECT_EQ(chats.make()[1], nullptr);
}

TEST(SftSources, PartsMayHaveFilesOfTheirOwn) {
  Chats chats;
  chats.data.train_data_path = {chats.data.data_path[0], chats.data.data_path[0]};
  chats.data.valid_data_path = chats.data.data_path;
  const auto parts = chats.make();
  EXPECT_EQ(parts[0]->counts().conversations, 20) << "one file behind the other";
  EXPECT_EQ(parts[1]->counts().conversations, 10);
  EXPECT_EQ(parts[2], nullptr);
}

TEST(SftSources, WeightsHaveNoMeaning) {
  Chats chats;
  chats.data.data_path.insert(chats.data.data_path.begin(), "0.5");
  EXPECT_EQ(error_of([&] { chats.make(); }),
            "--sft reads the files of --data-path one after the other: the weight 0.5 has no "
            "meaning here\n  hint: leave weights out");
}

TEST(SftSources, IdentityWritesContentsAloneAndTakesNoTemplate) {
  Chats chats;
  write_file(chats.folder / "chats.jsonl",
             R"({"messages": [{"role": "user", "content": "one"},
                              {"role": "assistant", "content": " two"}]})"
             "\n");
  std::string flat = read_file(chats.folder / "chats.jsonl");
  std::erase(flat, '\n');
  write_file(chats.folder / "chats.jsonl", flat + "\n");
  chats.data.split = "1";
  chats.sft.sft_tokenizer_prompt_format = "identity";
  Sample sample;
  chats.make()[0]->sample(0, sample);
  EXPECT_EQ(chats.tokenizer.decode(std::span(sample.tokens).first(2)), "one two");
  chats.sft.chat_template = "a.jinja";
  EXPECT_EQ(error_of([&] { chats.make(); }),
            "--sft-tokenizer-prompt-format identity and --chat-template a.jinja contradict each "
            "other");
}

TEST(SftSources, TheTemplateOfTheTokenizersFolderIsTaken) {
  Chats chats;
  write_file(chats.folder / "chats.jsonl", R"({"messages": [{"role": "user", "content": "q"}, )"
                                           R"({"role": "assistant", "content": "yes"}]})"
                                           "\n");
  chats.data.split = "1";
  EXPECT_NE(error_of([&] { chats.make(); }).find("messages need a chat template"),
            std::string::npos);
  write_file(chats.folder / "chat_template.jinja",
             "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
             "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  chats.data.tokenizer_model = (chats.folder / "tokenizer.model").string();  // a file beside it
  Sample sample;
  chats.make()[0]->sample(0, sample);
  EXPECT_EQ(chats.tokenizer.decode(std::span(sample.tokens).first(4)), "<|user|>q<|assistant|>yes");
}

TEST(SftSources, FlagsBecomeTheWayOfPacking) {
  SftConfig sft;
  EXPECT_EQ(sft.packing(), PackMethod::none);
  EXPECT_EQ(sft.too_long(), TooLong::cut);
  sft.sft_packing = "in-order";
  EXPECT_EQ(sft.packing(), PackMethod::in_order);
  sft.sft_packing = "first-fit-decreasing";
  EXPECT_EQ(sft.packing(), PackMethod::first_fit_decreasing);
  sft.sft_too_long = "skip";
  EXPECT_EQ(sft.too_long(), TooLong::skip);
}

}  // namespace
}  // namespace phx
