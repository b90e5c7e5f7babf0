#include "phalanx/text/chat/conversation.h"

#include <gtest/gtest.h>

#include "phalanx/text/chat/chat_template.h"
#include "phalanx/text/jinja/builtins.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

// What is learned of a chat, answer by answer.
std::vector<std::string> learned(const ChatText& chat) {
  std::vector<std::string> answers;
  for (const auto& [begin, end] : chat.learned)
    answers.push_back(chat.text.substr(begin, end - begin));
  return answers;
}

using Answers = std::vector<std::string>;

jinja::Value no_tokens() { return jinja::parse_json("{}"); }

constexpr const char* kMarks =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

TEST(Conversation, AreReadInAllThreeForms) {
  const auto share = parse_chat_line(
      R"({"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "Q"},
          {"from": "gpt", "value": "A"}]})");
  ASSERT_EQ(share.size(), 1u);
  const ChatTemplate marks(kMarks, "marks", no_tokens());
  EXPECT_EQ(marks.render_with_answers(share[0]).text,
            "<|system|>S<|end|><|user|>Q<|end|><|assistant|>A<|end|>");
  const auto plain = parse_chat_line(R"({"prompt": "2 + 2 =", "completion": " 4"})");
  EXPECT_TRUE(plain.at(0).is_plain);
  EXPECT_EQ(plain[0].completion, " 4");
  const auto lists = parse_chat_line(
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})");
  EXPECT_EQ(learned(marks.render_with_answers(lists.at(0))), (Answers{"d<|end|>"}));
}

TEST(Conversation, ASystemMessageBeginsANewConversation) {
  const auto two = parse_chat_line(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"},
          {"role": "user", "content": "c"}]})");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].messages.size(), 1u);
  EXPECT_EQ(two[1].messages.size(), 2u);
}

TEST(Conversation, WhatALineLacksIsSaid) {
  const auto error = [](const char* line) { return error_of([&] { parse_chat_line(line); }); };
  EXPECT_EQ(error(R"({"text": "a"})"),
            "the object has none of \"messages\", \"conversations\", or \"prompt\" and "
            "\"completion\"");
  EXPECT_EQ(error(R"({"messages": []})"),
            "\"messages\" should be a list of messages, but it is empty");
  EXPECT_EQ(error(R"({"messages": [{"content": "a"}]})"),
            "message 0 of \"messages\" has no \"role\"");
  EXPECT_EQ(error(R"({"conversations": [{"from": "cat", "value": "m"}]})"),
            "\"from\": \"cat\" is nobody we know: human, gpt, system and tool speak in such chats");
  EXPECT_TRUE(error("{\"messages\": ").starts_with("this is not valid JSON: "));
}

std::string field(const jinja::Value& message, const char* name) {
  return jinja::find(message.get<jinja::Dict>(), name)->text();
}

TEST(Conversation, EverySpeakerOfShareGptHasARole) {
  for (const auto& [from, role] : {std::pair{"human", "user"},
                                   {"user", "user"},
                                   {"gpt", "assistant"},
                                   {"model", "assistant"},
                                   {"chatgpt", "assistant"},
                                   {"observation", "tool"}}) {
    const auto chat = parse_chat_line(R"({"conversations": [{"from": ")" + std::string(from) +
                                      R"(", "value": "v"}]})");
    EXPECT_EQ(field(chat.at(0).messages.at(0), "role"), role) << from;
    EXPECT_EQ(field(chat[0].messages[0], "content"), "v");
  }
}

TEST(Conversation, ToolsAndVariablesGoWithEveryConversationOfTheLine) {
  const auto two = parse_chat_line(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
          "tools": [1], "chat_template_kwargs": {"x": 1}})");
  ASSERT_EQ(two.size(), 2u);
  for (const Conversation& chat : two) {
    EXPECT_TRUE(chat.tools.is(jinja::Kind::list));
    EXPECT_TRUE(chat.template_kwargs.is(jinja::Kind::dict));
  }
  EXPECT_TRUE(
      parse_chat_line(R"({"messages": [{"role": "user"}]})")[0].tools.is(jinja::Kind::none));
}

TEST(Conversation, WhatIsOfTheWrongKindIsNamed) {
  const auto error = [](const char* line) { return error_of([&] { parse_chat_line(line); }); };
  EXPECT_EQ(error("[1]"), "a line should be one JSON object, not list");
  EXPECT_EQ(error(R"({"messages": ["a"]})"),
            "message 0 of \"messages\" should be an object, not str");
  EXPECT_EQ(error(R"({"messages": [{"role": 1}]})"),
            "the role of message 0 should be a string, not int");
  EXPECT_EQ(error(R"({"prompt": "a", "completion": [1]})"),
            "\"prompt\" and \"completion\" should both be strings, or both lists of messages, but "
            "they are str and list");
}

}  // namespace
}  // namespace phx
