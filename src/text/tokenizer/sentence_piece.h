// SentencePiece's .model files, through its own library.
#pragma once

#include <memory>
#include <string>

#include "phalanx/text/tokenizer.h"

namespace phx {

std::unique_ptr<const Tokenizer> load_sentence_piece(const std::string& path);

}  // namespace phx
