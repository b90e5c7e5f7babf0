#include "phalanx/text/chat/chat_tokens.h"

#include <gtest/gtest.h>

#include "phalanx/text/chat/chat_template.h"
#include "phalanx/text/jinja/builtins.h"
#include "support/temp_folder.h"
#include "text/word_tokenizer.h"

namespace phx {
namespace {

using Texts = std::vector<std::string>;

std::vector<std::string> learned_tokens(const ChatTokens& chat, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < chat.tokens.size(); ++i)
    if (chat.learned[i]) texts.push_back(tokenizer.token_text(chat.tokens[i]));
  return texts;
}

TEST(ChatTokens, TokensOfTextsAreLearned) {
  const WordTokenizer tokenizer;
  const ChatTemplate marks(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "marks", jinja::parse_json("{}"));
  const ChatText chat = marks.render_with_answers(parse_chat_line(
      R"({"messages": [{"role": "user", "content": "say yes"}, {"role": "assistant", "content": "yes"},
          {"role": "user", "content": "yes"}, {"role": "assistant", "content": "no"}]})")[0]);
  const ChatTokens tokens = tokenize_chat(chat, tokenizer);
  EXPECT_EQ(tokens.tokens, tokenizer.encode(chat.text));
  EXPECT_EQ(learned_tokens(tokens, tokenizer), (Texts{"yes", "<|end|>", "no", "<|end|>"}));
}

TEST(ChatTokens, ATokenThatReachesIntoAnAnswerIsLearned) {
  const WordTokenizer tokenizer;
  const ChatText inside{.text = "one twothree four",
                        .learned = {{7, 12}}};  // "three" of "twothree"
  EXPECT_EQ(learned_tokens(tokenize_chat(inside, tokenizer), tokenizer), (Texts{" twothree"}));
  const ChatText ends{.text = "one twothree four", .learned = {{0, 7}}};  // "one two"
  EXPECT_EQ(learned_tokens(tokenize_chat(ends, tokenizer), tokenizer), (Texts{"one", " twothree"}));
}

TEST(ChatTokens, OfPlainTextTheCompletionAndTheEndAreLearned) {
  const WordTokenizer tokenizer;
  const auto plain = parse_chat_line(R"({"prompt": "one two", "completion": " three"})");
  EXPECT_EQ(learned_tokens(tokenize_plain(plain[0], tokenizer), tokenizer),
            (Texts{" three", "<|eod|>"}));
}

// Gives back other text than it was given: no blanks.
class Squeezes final : public WordTokenizer {
 public:
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text = WordTokenizer::decode(ids);
    std::erase(text, ' ');
    return text;
  }
};

TEST(ChatTokens, WhereTheTextDoesNotComeBackABorderInsideOfATokenIsRefused) {
  const Squeezes tokenizer;
  EXPECT_EQ(error_of([&] {
              tokenize_chat({.text = "one twothree four", .learned = {{7, 12}}}, tokenizer);
            }),
            "a token reaches over the border of an answer, and words as they come does not give "
            "back the text it was given, so the place cannot be found");
}

TEST(ChatTokens, NothingLearnedMarksNothing) {
  const WordTokenizer tokenizer;
  const ChatTokens tokens = tokenize_chat({.text = "one two", .learned = {}}, tokenizer);
  EXPECT_EQ(tokens.tokens.size(), 2u);
  EXPECT_EQ(tokens.learned, (std::vector<uint8_t>{0, 0}));
}

}  // namespace
}  // namespace phx
