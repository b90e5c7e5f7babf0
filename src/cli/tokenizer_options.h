// What a tokenizer has to do with the options of a run: which one is meant, whether one is missing,
// and the size of the vocabulary that follows.
#pragma once

#include "phalanx/cli/pretrain_options.h"

namespace phx {

// As in Megatron's pretrain_gpt.py: its two files need no --tokenizer-type. Nor does a file that
// says itself what it is; one that cannot be read is told by whoever opens it.
void take_default_tokenizer(const OptionSet& set, DataConfig& data);

// Chats are text, so that a run on them needs a tokenizer even if it knows the vocabulary's size.
void check_tokenizer_of_chats(const OptionSet& set, const PretrainOptions& options,
                              ParseReport& report);

// The tokenizer says how many tokens there are. Where it cannot be read, recipes are checked all
// the same (cli/not_in_this_build.h refuses the run); chats are tokenized by the run itself.
void take_vocabulary(ParseResult& result);

}  // namespace phx
