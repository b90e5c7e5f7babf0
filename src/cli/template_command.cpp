#include "phalanx/cli/template_command.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <iostream>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/base/terminal.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/text/chat/chat_template.h"
#include "phalanx/text/jinja/builtins.h"

namespace phx {
namespace {

struct TemplateOptions {
  std::string chat_template;
  std::string chat_template_name = "default";
  std::string input;
  int64_t chats = 3;
  std::string batch;

  template <class Field>
  void each(Field&& field) {
    field("chat-template", chat_template,
          "a folder with tokenizer_config.json or chat_template.jinja, or such a file");
    field("chat-template-name", chat_template_name, "which template, if a config has several");
    field("input", input, "chats: JSON lines as --sft reads them");
    field("chats", chats, "lines to show, from the first", Positive{});
    field(
        "batch", batch,
        "for programs: JSON lines with `template`, `variables` and `now`; the answer to each is a "
        "line with `text` and `generation`, or `error`");
  }
};

void check_what(const OptionSet& options, Problems& problems) {
  if (options.active("batch")) return;
  for (const char* name : {"chat-template", "input"})
    if (!options.active(name))
      problems.push_back({ProblemKind::rule, str_cat("--", name),
                          str_cat("--", name, " is missing"),
                          "a template and chats are shown together"});
}

// What is learned stands out: bold on a terminal, in 【 】 elsewhere.
std::string marked(const ChatText& chat, bool terminal) {
  std::string text;
  size_t at = 0;
  for (const auto& [begin, end] : chat.learned) {
    text += chat.text.substr(at, begin - at) + (terminal ? "\033[1;32m" : "【");
    text += chat.text.substr(begin, end - begin) + (terminal ? "\033[0m" : "】");
    at = end;
  }
  return text + chat.text.substr(at);
}

void show_chats(const TemplateOptions& options) {
  const ChatTemplate chat_template =
      ChatTemplate::load(options.chat_template, options.chat_template_name);
  const std::string content = read_file(options.input);
  std::string_view rest = content;
  const Terminal terminal;
  for (int64_t line = 1; !rest.empty() && line <= options.chats; ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      for (const Conversation& conversation : parse_chat_line(text)) {
        const ChatText chat =
            conversation.is_plain
                ? ChatText{conversation.prompt + conversation.completion,
                           {{conversation.prompt.size(),
                             conversation.prompt.size() + conversation.completion.size()}}}
                : chat_template.render_with_answers(conversation);
        std::cout << marked(chat, terminal.shows_status()) << "\n---\n";
      }
    } catch (const Error& error) {
      throw Error(str_cat(options.input, ":", line, ": ", error.what()));
    }
  }
}

std::tm time_of(const nlohmann::ordered_json& job) {
  if (!job.contains("now")) return jinja::local_time();
  std::tm now = {};
  const auto text = job.at("now").get<std::string>();
  PHX_CHECK(::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &now) != nullptr, "\"now\": \"", text,
            "\" should be as 2025-07-04T09:05:03");
  ::timegm(&now);  // sets the day of the week and of the year
  return now;
}

// Whatever is wrong with a job is its own answer: the others go on.
nlohmann::json answer_to(std::string_view line) {
  try {
    // Keys keep their order: a dict in a template has one.
    const auto job = nlohmann::ordered_json::parse(line);
    const jinja::Template made(job.at("template").get<std::string>(), "template");
    const jinja::Value variables = jinja::parse_json(json_text(job.at("variables")));
    const jinja::Rendered rendered = made.render(variables, {.now = time_of(job)});
    nlohmann::json spans = nlohmann::json::array();
    for (const auto& [begin, end] : rendered.generation) spans.push_back({begin, end});
    return {{"text", rendered.text}, {"generation", spans}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int run_template(std::span<const std::string> args) {
  TemplateOptions options;
  OptionSet set;
  set.add("Template", options);
  const Rule rules[] = {{"a template and chats, or a batch", check_what}};
  const CommandHelp help = {
      "phalanx template --chat-template PATH --input FILE.jsonl [flags]",
      "Renders chats with a chat template, and marks what --sft trains on.",
      "phalanx template --chat-template my-model/ --input chats.jsonl --chats 2"};
  if (const auto exit_code = parse_args(set, rules, help, args)) return *exit_code;
  if (options.batch.empty()) {
    show_chats(options);
    return 0;
  }
  const std::string content = read_file(options.batch);
  std::string_view rest = content;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::cout << json_text(answer_to(rest.substr(0, end))) << "\n";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return 0;
}

}  // namespace phx
