// A model's chat template with its special tokens, and where in the rendered chat the assistant
// speaks: the text that is learned is found by position, never by looking for strings.
#pragma once

#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/text/chat/conversation.h"
#include "phalanx/text/jinja/jinja_template.h"

namespace phx {

struct ChatText {
  std::string text;
  std::vector<jinja::TextSpan> learned;  // in order, apart from each other
};

class ChatTemplate {
 public:
  // `special_tokens`: a dict as bos_token -> "<s>".
  ChatTemplate(std::string_view source, std::string name, const jinja::Value& special_tokens);

  // From a folder (chat_template.jinja, else tokenizer_config.json), a tokenizer_config.json or a
  // .jinja file; special tokens come from the tokenizer_config.json there or beside it. `variant`
  // chooses among several named templates.
  static ChatTemplate load(const Path& path, const std::string& variant = "default");

  std::string render(const jinja::Values& messages, const Conversation& conversation,
                     bool add_generation_prompt) const;

  // The whole chat and what of it is learned. With {% generation %} in the template: what these
  // blocks write. Otherwise an answer begins where the chat before it with a generation prompt ends
  // and ends where the chat with it ends; both have to be beginnings of the whole chat. An answer
  // that a template writes differently once the chat goes on ends where its turn of the loop over
  // the messages ends. An Error says for which message none of this holds.
  ChatText render_with_answers(const Conversation& conversation) const;

  const std::string& name() const { return template_.name(); }

 private:
  jinja::Rendered render_messages(const jinja::Values& messages, const Conversation& conversation,
                                  bool add_generation_prompt) const;
  std::vector<jinja::TextSpan> answers_by_prefixes(const Conversation& conversation,
                                                   const jinja::Rendered& whole) const;
  size_t end_of_answer(const Conversation& conversation, const jinja::Rendered& whole,
                       size_t message, size_t begin) const;

  jinja::Template template_;
  jinja::Value special_tokens_;
  std::tm now_;  // one for all chats, so that a run over midnight sees one date
};

}  // namespace phx
