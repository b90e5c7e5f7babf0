#include "phalanx/data/chat/sft_dataset.h"

#include <gtest/gtest.h>

#include <numeric>

#include "phalanx/base/file.h"
#include "phalanx/text/jinja/builtins.h"
#include "support/temp_folder.h"
#include "text/word_tokenizer.h"

namespace phx {
namespace {

// Two tokens a message beside its words: <|role|> .. <|end|>.
constexpr const char* kMarks =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

std::string line(const std::string& question, const std::string& answer) {
  return "{\"messages\": [{\"role\": \"user\", \"content\": \"" + question +
         "\"}, {\"role\": \"assistant\", \"content\": \"" + answer + "\"}]}\n";
}

struct Chats {
  explicit Chats(const std::string& content)
      : chat_template(kMarks, "marks", jinja::parse_json("{}")) {
    write_file(path(), content);
  }
  Path path() const { return folder.path() / "chats.jsonl"; }
  SftDataset open(const SftOptions& options, Split split = Split::train) const {
    return SftDataset({{path()}}, &chat_template, tokenizer, split, options);
  }
  std::string text(const std::vector<int32_t>& tokens) const { return tokenizer.decode(tokens); }

  TempFolder folder;
  ChatTemplate chat_template;
  WordTokenizer tokenizer;
};

TEST(SftDataset, ASampleHasItsAnswersMaskedInItsPositionsAndItsLengths) {
  // 8 and 7 tokens: <|user|>a b<|end|><|assistant|>c d<|end|> and so on.
  const Chats chats(line("a b", "c d") + line("e", "f g"));
  const SftDataset data = chats.open({.seq_length = 18, .packing = PackMethod::in_order});
  EXPECT_EQ(data.samples_in_epoch(), 1);
  EXPECT_DOUBLE_EQ(data.padding(), 3.0 / 18);
  Sample sample;
  data.sample(0, sample);
  EXPECT_EQ(chats.text(sample.tokens),
            "<|user|>a b<|end|><|assistant|>c d<|end|><|user|>e<|end|><|assistant|>f g<|end|>"
            "<|eod|><|eod|><|eod|>");
  std::string learned;
  for (size_t i = 0; i < 18; ++i)
    if (sample.loss_mask[i]) learned += chats.text({sample.labels[i]});
  EXPECT_EQ(learned, "c d<|end|>f g<|end|>");
  // The label is the next token of the same chat: the mask is a place ahead of the answer.
  EXPECT_EQ(sample.loss_mask, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1, 1, 0,  //
                                                    0, 0, 0, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(sample.labels[4], sample.tokens[5]);
  EXPECT_EQ(sample.cu_seqlens, (std::vector<int32_t>{0, 8, 18}));
  EXPECT_EQ(sample.positions,
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(SftDataset, WithoutPackingALineIsASampleAndSystemMessagesBeginAnew) {
  const Chats chats(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
      "{\"role\": \"assistant\", \"content\": \"b\"}, "
      "{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"c\"}, "
      "{\"role\": \"assistant\", \"content\": \"d\"}]}\n" +
      line("e", "f"));
  const SftDataset data = chats.open({.seq_length = 20});
  EXPECT_EQ(data.counts().conversations, 3);
  ASSERT_EQ(data.samples_in_epoch(), 2);
  Sample sample;
  data.sample(0, sample);
  EXPECT_EQ(sample.cu_seqlens, (std::vector<int32_t>{0, 6, 20}));
  data.sample(3, sample);  // the second epoch is in the same order
  EXPECT_EQ(sample.cu_seqlens, (std::vector<int32_t>{0, 20}));
}

TEST(SftDataset, LongChatsAreCutOrLeftOutAndCounted) {
  const Chats chats(line("a", "b c d e f g h") + line("a b c d e f", "g") + line("a", "b"));
  const SftDataset cut = chats.open({.seq_length = 8, .packing = PackMethod::in_order});
  EXPECT_EQ(cut.counts().cut, 1);
  EXPECT_EQ(cut.counts().silent, 1);  // its answer is behind the cut
  EXPECT_EQ(cut.counts().skipped, 0);
  const SftDataset skipped =
      chats.open({.seq_length = 8, .packing = PackMethod::in_order, .too_long = TooLong::skip});
  EXPECT_EQ(skipped.counts().skipped, 2);
  EXPECT_EQ(skipped.samples_in_epoch(), 1);
  EXPECT_EQ(skipped.description(),
            "3 training conversations in 1 samples, 2 of 6 tokens learned, 25.0% padding, 2 too "
            "long and left out");
}

TEST(SftDataset, PackedSamplesComeInAnOrderOfTheirSeedAndEachOnceAnEpoch) {
  std::string content;
  for (int i = 0; i < 40; ++i) content += line(std::string(size_t(1 + i), 'q'), "a");
  const Chats chats(content);
  const auto order = [&](uint64_t seed) {
    const SftDataset data =
        chats.open({.seq_length = 12, .packing = PackMethod::first_fit_decreasing, .seed = seed});
    std::vector<std::vector<int32_t>> samples;
    Sample sample;
    for (int64_t i = 0; i < data.samples_in_epoch(); ++i) {
      data.sample(i, sample);
      samples.push_back(sample.tokens);
    }
    return samples;
  };
  const auto first = order(1), again = order(1);
  auto other = order(2);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  auto sorted = first;
  std::ranges::sort(sorted);
  std::ranges::sort(other);
  EXPECT_EQ(sorted, other);
}

TEST(SftDataset, ChatsTakeMultiplesWhereRanksShareThem) {
  const Chats chats(line("a", "b") + line("c", "d"));  // 6 tokens each
  const SftDataset data =
      chats.open({.seq_length = 24, .packing = PackMethod::in_order, .multiple_of = 4});
  Sample sample;
  data.sample(0, sample);
  EXPECT_EQ(sample.cu_seqlens, (std::vector<int32_t>{0, 8, 24}));
  EXPECT_EQ(std::accumulate(sample.loss_mask.begin(), sample.loss_mask.end(), 0), 4);
}

TEST(SftDataset, AnErrorNamesTheFileAndTheLine) {
  const Chats chats(line("a", "b") + "\n" + "{\"messages\": 5}\n");
  EXPECT_EQ(
      error_of([&] { chats.open({.seq_length = 8}); }),
      chats.path().native() + ":3: \"messages\" should be a list of messages, but it is a int");
  const Chats silent("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  EXPECT_EQ(error_of([&] { silent.open({.seq_length = 8}); }),
            "there is no training chat with an answer to learn: 1 conversations were read, 0 were "
            "too long, 1 had nothing to learn in 8 tokens\n  hint: a longer --seq-length, another "
            "--split, or more data");
  EXPECT_TRUE(error_of([&] {
                SftDataset({{chats.path()}}, nullptr, chats.tokenizer, Split::train,
                           {.seq_length = 8});
              }).starts_with(chats.path().native() + ":1: messages need a chat template"));
}

}  // namespace
}  // namespace phx
