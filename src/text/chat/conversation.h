// Chats as they come in JSON lines:
//
//   {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
//   {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]}
//   {"prompt": "2 + 2 =", "completion": " 4"}
//
// The first two go through the chat template; `tools` beside them is handed to it. Prompt and
// completion are plain text that no template touches, or lists of messages that one does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "phalanx/text/jinja/value.h"

namespace phx {

struct Conversation {
  jinja::Values messages;        // dicts with `role`, in order
  jinja::Value tools;            // a list, or none
  jinja::Value template_kwargs;  // further variables of the template: a dict, or none
  size_t first_answer = 0;       // assistant messages before this one are given, not learned
  // Instead of messages: text as it is, of which the second part is learned.
  bool is_plain = false;
  std::string prompt, completion;
};

// The conversations of one line. As in Megatron, each `system` message begins a new one. An Error
// says what the line lacks.
std::vector<Conversation> parse_chat_line(std::string_view line);

}  // namespace phx
