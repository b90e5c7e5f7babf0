// Fine-tuning on chats: --sft and what belongs to it.
#pragma once

#include <string>
#include <vector>

#include "phalanx/base/option_traits.h"
#include "phalanx/data/chat/packing.h"

namespace phx {

struct Rule;
struct DataConfig;
enum class TooLong;

struct SftConfig {
  bool sft = false;
  std::string sft_tokenizer_prompt_format;
  std::string chat_template;
  std::string chat_template_name = "default";
  std::string sft_packing = "none";
  std::string sft_too_long = "cut";

  PackMethod packing() const;
  TooLong too_long() const;

  template <class Field>
  void each(Field&& field) {
    field("sft", sft,
          "train on chats: --data-path names JSON lines of conversations; only the assistant's "
          "turns have a loss");
    field("sft-tokenizer-prompt-format", sft_tokenizer_prompt_format,
          "how chats are formatted: with the tokenizer's own template, or as the plain contents of "
          "the messages",
          OneOf{{"default", "identity"}}, DefaultIs{"default"},
          Refuses{{{"nemotron-h-aligned",
                    "its template is not ours to carry: --chat-template "
                    "FILE.jinja names it"},
                   {"nemotron-nano-v2",
                    "its template is not ours to carry: --chat-template "
                    "FILE.jinja names it"}}});
    field("chat-template", chat_template,
          "a folder with chat_template.jinja or tokenizer_config.json, or such a file",
          DefaultIs{"the folder of --tokenizer-model"});
    field("chat-template-name", chat_template_name, "which template, if a config has several",
          Own{});
    field("sft-packing", sft_packing,
          "how chats are packed into samples: one each, in the order of the file, or by length "
          "with the least padding",
          OneOf{{"none", "in-order", "first-fit-decreasing"}}, Own{});
    field("sft-too-long", sft_too_long, "what to do with chats longer than --seq-length",
          OneOf{{"cut", "skip"}}, Own{});
  }
};

std::vector<Rule> sft_rules();

}  // namespace phx
