#include "phalanx/text/chat/conversation.h"

#include "phalanx/base/error.h"
#include "phalanx/text/jinja/builtins.h"

namespace phx {
namespace {

using jinja::Kind;
using jinja::Value;
using jinja::Values;

std::string role_of(const Value& message) {
  return jinja::find(message.get<jinja::Dict>(), "role")->text();
}

// ShareGPT's names of who speaks; data sets in the wild use all of these.
std::string role_from(const std::string& from) {
  if (from == "human" || from == "user") return "user";
  if (from == "gpt" || from == "assistant" || from == "model" || from == "chatgpt")
    return "assistant";
  if (from == "system") return "system";
  if (from == "tool" || from == "observation" || from == "function_response") return "tool";
  throw Error(str_cat("\"from\": \"", from,
                      "\" is nobody we know: human, gpt, system and tool speak in such chats"));
}

Value renamed(const jinja::Dict& turn, size_t index) {
  const Value *from = jinja::find(turn, "from"), *value = jinja::find(turn, "value");
  PHX_CHECK(from != nullptr && from->is(Kind::text) && value != nullptr, "turn ", index,
            " should have \"from\" and \"value\"");
  jinja::Budget unlimited(INT64_MAX);
  return jinja::dict({{jinja::text("role"), jinja::text(role_from(from->text()))},
                      {jinja::text("content"), *value}},
                     unlimited);
}

Values messages_of(const Value& list, const char* key) {
  PHX_CHECK(list.is(Kind::list) && !list.get<jinja::List>().items.empty(), "\"", key,
            "\" should be a list of messages, but it is ",
            list.is(Kind::list) ? "empty" : "a " + jinja::type_name(list));
  Values messages;
  for (const Value& turn : list.get<jinja::List>().items) {
    const size_t index = messages.size();
    PHX_CHECK(turn.is(Kind::dict), "message ", index, " of \"", key, "\" should be an object, not ",
              jinja::type_name(turn));
    const auto& fields = turn.get<jinja::Dict>();
    if (const Value* role = jinja::find(fields, "role")) {
      PHX_CHECK(role->is(Kind::text), "the role of message ", index, " should be a string, not ",
                jinja::type_name(*role));
      messages.push_back(turn);
    } else {
      PHX_CHECK(jinja::find(fields, "from") != nullptr, "message ", index, " of \"", key,
                "\" has no \"role\"");
      messages.push_back(renamed(fields, index));
    }
  }
  return messages;
}

Conversation prompt_and_completion(const Value& prompt, const Value& completion) {
  Conversation made;
  if (prompt.is(Kind::text) && completion.is(Kind::text)) {
    made.is_plain = true;
    made.prompt = prompt.text();
    made.completion = completion.text();
    return made;
  }
  PHX_CHECK(prompt.is(Kind::list) && completion.is(Kind::list),
            "\"prompt\" and \"completion\" should both be strings, or both lists of messages, but ",
            "they are ", jinja::type_name(prompt), " and ", jinja::type_name(completion));
  made.messages = messages_of(prompt, "prompt");
  made.first_answer = made.messages.size();
  for (Value& message : messages_of(completion, "completion"))
    made.messages.push_back(std::move(message));
  return made;
}

}  // namespace

std::vector<Conversation> parse_chat_line(std::string_view line) {
  const Value row = jinja::parse_json(line);
  PHX_CHECK(row.is(Kind::dict), "a line should be one JSON object, not ", jinja::type_name(row));
  const auto& fields = row.get<jinja::Dict>();
  const auto field = [&](const char* name) { return jinja::find(fields, name); };
  const auto optional_field = [&](const char* name) {
    const Value* value = field(name);
    return value == nullptr ? jinja::none() : *value;
  };
  if (const Value* prompt = field("prompt"); prompt != nullptr && field("completion") != nullptr)
    return {prompt_and_completion(*prompt, *field("completion"))};
  const char* key = field("messages") != nullptr ? "messages" : "conversations";
  PHX_CHECK(field(key) != nullptr,
            "the object has none of \"messages\", \"conversations\", or \"prompt\" and "
            "\"completion\"");
  std::vector<Conversation> all;
  for (Value& message : messages_of(*field(key), key)) {
    if (all.empty() || role_of(message) == "system") {
      all.emplace_back();
      all.back().tools = optional_field("tools");
      all.back().template_kwargs = optional_field("chat_template_kwargs");
    }
    all.back().messages.push_back(std::move(message));
  }
  return all;
}

}  // namespace phx
