#include "phalanx/text/chat/chat_template.h"

#include "phalanx/base/error.h"
#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx {
namespace {

using jinja::Kind;
using jinja::TextSpan;
using jinja::Value;
using jinja::Values;

const Value* find(const Value& dict, std::string_view key) {
  return jinja::find(dict.get<jinja::Dict>(), key);
}

bool is_assistant(const Value& message) { return find(message, "role")->text() == "assistant"; }

Value read_config(const Path& file) {
  try {
    Value config = jinja::parse_json(read_file(file));
    PHX_CHECK(config.is(Kind::dict), "it should be a JSON object");
    return config;
  } catch (const Error& error) {
    throw Error(str_cat(file.native(), ": ", error.what()));
  }
}

// bos_token and its kin, each a string or an object with its text as "content".
Value special_tokens_of(const Value& config) {
  std::vector<std::pair<Value, Value>> tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const Value* token = find(config, name);
    if (token != nullptr && token->is(Kind::dict)) token = find(*token, "content");
    if (token != nullptr && token->is(Kind::text)) tokens.emplace_back(jinja::text(name), *token);
  }
  jinja::Budget unlimited(INT64_MAX);
  return jinja::dict(std::move(tokens), unlimited);
}

std::string source_in(const Value& config, const Path& file, const std::string& variant) {
  const Value* held = find(config, "chat_template");
  PHX_CHECK(held != nullptr, file.native(),
            " has no \"chat_template\"\n  hint: --chat-template FILE.jinja names one");
  if (held->is(Kind::text)) return held->text();
  PHX_CHECK(held->is(Kind::list), file.native(),
            ": \"chat_template\" should be a string or a list of named templates");
  std::string names;
  for (const Value& entry : held->get<jinja::List>().items) {
    const Value* name = entry.is(Kind::dict) ? find(entry, "name") : nullptr;
    const Value* source = entry.is(Kind::dict) ? find(entry, "template") : nullptr;
    PHX_CHECK(
        name != nullptr && name->is(Kind::text) && source != nullptr && source->is(Kind::text),
        file.native(), ": an entry of \"chat_template\" should have a name and a template");
    if (name->text() == variant) return source->text();
    names += (names.empty() ? "" : ", ") + name->text();
  }
  throw Error(str_cat(file.native(), " has no chat template called ", variant, "; it has ", names));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string name,
                           const jinja::Value& special_tokens)
    : template_(source, std::move(name)),
      special_tokens_(special_tokens),
      now_(jinja::local_time()) {}

ChatTemplate ChatTemplate::load(const Path& path, const std::string& variant) {
  const bool folder = std::filesystem::is_directory(path);
  const Path home = folder ? path : path.parent_path();
  const Path config_file = home / "tokenizer_config.json", file = home / "chat_template.jinja";
  jinja::Budget unlimited(INT64_MAX);
  Value config = jinja::dict({}, unlimited);
  if (!folder && path.extension() == ".json")
    config = read_config(path);
  else if (std::filesystem::exists(config_file))
    config = read_config(config_file);
  const Value tokens = special_tokens_of(config);
  if (!folder && path.extension() != ".json")
    return ChatTemplate(read_file(path), path.native(), tokens);
  if (folder && std::filesystem::exists(file))
    return ChatTemplate(read_file(file), file.native(), tokens);
  const Path from = folder ? config_file : path;
  PHX_CHECK(!folder || std::filesystem::exists(config_file), path.native(),
            " holds neither chat_template.jinja nor tokenizer_config.json\n  hint: --chat-template "
            "FILE.jinja names a template");
  return ChatTemplate(source_in(config, from, variant), from.native() + " (chat_template)", tokens);
}

jinja::Rendered ChatTemplate::render_messages(const Values& messages,
                                              const Conversation& conversation,
                                              bool add_generation_prompt) const {
  jinja::Budget unlimited(INT64_MAX);
  std::vector<std::pair<Value, Value>> variables = special_tokens_.get<jinja::Dict>().items;
  const auto add = [&](const char* name, Value value) {
    variables.emplace_back(jinja::text(name), std::move(value));
  };
  add("messages", jinja::list(messages));
  add("tools", conversation.tools.is(Kind::undefined) ? jinja::none() : conversation.tools);
  add("documents", jinja::none());
  add("add_generation_prompt", Value::of(add_generation_prompt));
  if (conversation.template_kwargs.is(Kind::dict))
    for (const auto& [name, value] : conversation.template_kwargs.get<jinja::Dict>().items)
      variables.emplace_back(name, value);
  return template_.render(jinja::dict(std::move(variables), unlimited),
                          {.now = now_, .watched = &messages});
}

std::string ChatTemplate::render(const Values& messages, const Conversation& conversation,
                                 bool add_generation_prompt) const {
  return render_messages(messages, conversation, add_generation_prompt).text;
}

ChatText ChatTemplate::render_with_answers(const Conversation& conversation) const {
  const jinja::Rendered whole =
      render_messages(conversation.messages, conversation, /*add_generation_prompt=*/false);
  if (!template_.has_generation_blocks())
    return {whole.text, answers_by_prefixes(conversation, whole)};
  ChatText chat{whole.text, {}};
  // Blocks of answers that are given stand in the turns of their messages.
  const auto given = [&](const TextSpan& block) {
    for (const auto& [index, span] : whole.watched)
      if (index < conversation.first_answer && span.begin <= block.begin && block.end <= span.end)
        return true;
    return false;
  };
  for (const TextSpan& block : whole.generation)
    if (block.end > block.begin && !given(block)) chat.learned.push_back(block);
  return chat;
}

std::vector<TextSpan> ChatTemplate::answers_by_prefixes(const Conversation& conversation,
                                                        const jinja::Rendered& whole) const {
  const Values& messages = conversation.messages;
  std::vector<TextSpan> answers;
  for (size_t i = conversation.first_answer; i < messages.size(); ++i) {
    if (!is_assistant(messages[i])) continue;
    const Values before(messages.begin(), messages.begin() + int64_t(i));
    // An answer after an answer goes on where that one ended, without a prompt in between.
    const bool goes_on = i > 0 && is_assistant(messages[i - 1]) && !answers.empty();
    size_t begin = 0;
    if (goes_on) {
      begin = answers.back().end;
    } else {
      const std::string prompt = render(before, conversation, /*add_generation_prompt=*/true);
      PHX_CHECK(
          whole.text.starts_with(prompt), "where the answer in message ", i,
          " begins is not known: ", name(), " writes the chat before it differently when it ",
          "asks for an answer\n  hint: a template with {% generation %} blocks says it itself");
      begin = prompt.size();
    }
    const size_t end = end_of_answer(conversation, whole, i, begin);
    if (end > begin) answers.push_back({begin, end});
  }
  return answers;
}

size_t ChatTemplate::end_of_answer(const Conversation& conversation, const jinja::Rendered& whole,
                                   size_t message, size_t begin) const {
  const Values& messages = conversation.messages;
  if (message + 1 == messages.size()) return whole.text.size();
  const Values until(messages.begin(), messages.begin() + int64_t(message) + 1);
  const std::string text = render(until, conversation, /*add_generation_prompt=*/false);
  if (whole.text.starts_with(text) && text.size() >= begin) return text.size();
  // Templates that drop an earlier answer's thoughts write it in a turn of their loop all the same.
  std::optional<TextSpan> turn;
  int turns = 0;
  for (const auto& [index, span] : whole.watched) {
    if (index != message) continue;
    turn = span;
    ++turns;
  }
  PHX_CHECK(
      turns == 1 && turn->begin <= begin && begin <= turn->end, "where the answer in message ",
      message, " ends is not known: ", name(),
      " writes it differently once the chat goes on\n  hint: a template with {% generation %} "
      "blocks says it itself");
  return turn->end;
}

}  // namespace phx
