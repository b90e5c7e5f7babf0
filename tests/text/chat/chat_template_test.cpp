#include "phalanx/text/chat/chat_template.h"

#include <gtest/gtest.h>

#include "phalanx/text/jinja/builtins.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

jinja::Value no_tokens() { return jinja::parse_json("{}"); }

// What is learned of a chat, answer by answer.
std::vector<std::string> learned(const ChatText& chat) {
  std::vector<std::string> answers;
  for (const auto& [begin, end] : chat.learned)
    answers.push_back(chat.text.substr(begin, end - begin));
  return answers;
}

using Answers = std::vector<std::string>;

std::string error_of(const ChatTemplate& made, const char* line) {
  try {
    made.render_with_answers(parse_chat_line(line).at(0));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr const char* kMarks =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
// The answer's words stand in the question as well: places count, not words.
constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "say yes"}, {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "yes<|assistant|>yes"}, {"role": "assistant", "content": "no"}]})";

TEST(ChatTemplate, AnswersAreFoundByPosition) {
  const ChatTemplate marks(kMarks, "marks", no_tokens());
  const ChatText chat = marks.render_with_answers(parse_chat_line(kTwoTurns)[0]);
  EXPECT_EQ(learned(chat), (Answers{"yes<|end|>", "no<|end|>"}));
  EXPECT_EQ(chat.learned[0].begin, std::string("<|user|>say yes<|end|><|assistant|>").size());
}

TEST(ChatTemplate, GenerationBlocksSayItThemselves) {
  const ChatTemplate blocks(
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}"
      "{% endfor %}",
      "blocks", no_tokens());
  EXPECT_EQ(learned(blocks.render_with_answers(parse_chat_line(kTwoTurns)[0])),
            (Answers{"yes<|end|>", "no<|end|>"}));
  const auto given = parse_chat_line(
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})");
  EXPECT_EQ(learned(blocks.render_with_answers(given[0])), (Answers{"d<|end|>"}));
}

TEST(ChatTemplate, AnAnswerThatLosesItsThoughtsLaterEndsWithItsTurn) {
  const ChatTemplate thoughts(
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' and loop.last %}"
      "(thought){% endif %}{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "thoughts", no_tokens());
  EXPECT_EQ(learned(thoughts.render_with_answers(parse_chat_line(kTwoTurns)[0])),
            (Answers{"yes<|end|>", "(thought)no<|end|>"}));
}

TEST(ChatTemplate, ATemplateWhoseAnswersHaveNoKnownPlaceIsRefused) {
  const ChatTemplate counts("{{ messages | length }}" + std::string(kMarks), "counts", no_tokens());
  EXPECT_EQ(
      error_of(counts, kTwoTurns),
      "where the answer in message 1 begins is not known: counts writes the chat before it "
      "differently when it asks for an answer\n  hint: a template with {% generation %} blocks "
      "says it itself");
  const ChatTemplate joins(
      "{{ messages | map(attribute='content') | join('|') }}{% if add_generation_prompt %}|{% "
      "endif "
      "%}{% if messages | length == 2 %}!{% endif %}",
      "joins", no_tokens());
  EXPECT_EQ(error_of(joins, kTwoTurns),
            "where the answer in message 1 ends is not known: joins writes it differently once the "
            "chat goes on\n  hint: a template with {% generation %} blocks says it itself");
}

TEST(ChatTemplate, ComesFromATokenizersFolder) {
  const TempFolder folder;
  write_file(folder.path() / "tokenizer_config.json",
             R"({"bos_token": {"content": "<|b|>"}, "eos_token": "<|e|>", "chat_template":
                 [{"name": "default", "template": "{{ bos_token }}d"},
                  {"name": "rag", "template": "{{ eos_token }}r"}]})");
  const auto text = [&](const ChatTemplate& made) { return made.render({}, {}, false); };
  EXPECT_EQ(text(ChatTemplate::load(folder.path())), "<|b|>d");
  EXPECT_EQ(text(ChatTemplate::load(folder.path(), "rag")), "<|e|>r");
  EXPECT_THROW(ChatTemplate::load(folder.path(), "tool"), Error);
  write_file(folder.path() / "chat_template.jinja", "{{ bos_token }}file\n");
  EXPECT_EQ(text(ChatTemplate::load(folder.path())), "<|b|>file");
  EXPECT_EQ(text(ChatTemplate::load(folder.path() / "chat_template.jinja")), "<|b|>file");
}

}  // namespace
}  // namespace phx
