#include "phalanx/text/tokenizer/decoder.h"

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/pattern.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::string>;

template <class Function>
class Stage final : public TokenDecoder {
 public:
  explicit Stage(Function function) : function_(std::move(function)) {}
  void decode(Tokens& tokens) const override { function_(tokens); }

 private:
  Function function_;
};

template <class Function>
std::unique_ptr<const TokenDecoder> stage(Function function) {
  return std::make_unique<Stage<Function>>(std::move(function));
}

std::string joined(const Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return all;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (from.empty() || at == std::string::npos) return;
  std::string out;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out += to;
    done = at + from.size();
  }
  out.append(text, done);
  text = std::move(out);
}

// Spaces before punctuation and contractions, as English has them.
void clean_up(std::string& text) {
  for (const auto& [from, to] : {std::pair{" .", "."},
                                 {" ?", "?"},
                                 {" !", "!"},
                                 {" ,", ","},
                                 {" ' ", "'"},
                                 {" n't", "n't"},
                                 {" 'm", "'m"},
                                 {" do not", " don't"},
                                 {" 's", "'s"},
                                 {" 've", "'ve"},
                                 {" 're", "'re"}}) {
    replace_all(text, from, to);
  }
}

void byte_level(Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const size_t begin = bytes.size();
    for (size_t at = 0; at < token.size();) {
      const int byte = code_to_byte(next_code(token, at));
      if (byte < 0) {  // not spelled in bytes: an added token, which is itself
        bytes.resize(begin);
        bytes += token;
        break;
      }
      bytes += static_cast<char>(byte);
    }
  }
  std::string storage;
  tokens.assign(1, std::string(valid_utf8(bytes, storage)));
}

int fallback_byte(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  char* end = nullptr;
  const std::string digits = token.substr(3, 2);
  if (!std::isxdigit(static_cast<uint8_t>(digits[0]))) return -1;
  const long byte = std::strtol(digits.c_str(), &end, 16);
  return *end == '\0' ? static_cast<int>(byte) : -1;
}

void byte_fallback(Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    std::string storage;
    if (bytes.empty()) return;
    if (valid_utf8(bytes, storage).data() == bytes.data()) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");  // one for each byte
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  tokens = std::move(out);
}

std::unique_ptr<const TokenDecoder> make_word_piece(const JsonFields& fields) {
  return stage(
      [prefix = fields.text("prefix", "##"), clean = fields.flag("cleanup", true)](Tokens& tokens) {
        for (size_t i = 0; i < tokens.size(); ++i) {
          if (i > 0) {
            if (tokens[i].compare(0, prefix.size(), prefix) == 0) {
              tokens[i].erase(0, prefix.size());
            } else {
              tokens[i].insert(tokens[i].begin(), ' ');
            }
          }
          if (clean) clean_up(tokens[i]);
        }
      });
}

std::unique_ptr<const TokenDecoder> make_metaspace(const JsonFields& fields) {
  const bool prefix = fields.flag("add_prefix_space", true);
  const std::string scheme = fields.text("prepend_scheme", prefix ? "always" : "never");
  return stage([sign = fields.text("replacement", "\xE2\x96\x81"),
                prepends = scheme != "never"](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], sign, i == 0 && prepends ? "" : " ");
    }
  });
}

std::unique_ptr<const TokenDecoder> make_strip(const JsonFields& fields) {
  const int64_t start = fields.number("start", 0), stop = fields.number("stop", 0);
  return stage([content = fields.text("content"), start, stop](Tokens& tokens) {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start && !content.empty(); ++i) {
        if (token.compare(0, content.size(), content) != 0) break;
        token.erase(0, content.size());
      }
      for (int64_t i = 0; i < stop && !content.empty(); ++i) {
        if (token.size() < content.size() ||
            token.compare(token.size() - content.size(), content.size(), content) != 0) {
          break;
        }
        token.resize(token.size() - content.size());
      }
    }
  });
}

std::unique_ptr<const TokenDecoder> make_ctc(const JsonFields& fields) {
  return stage([pad = fields.text("pad_token", "<pad>"),
                delimiter = fields.text("word_delimiter_token", "|"),
                clean = fields.flag("cleanup", true)](Tokens& tokens) {
    Tokens out;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i] == tokens[i - 1]) continue;
      std::string token = tokens[i];
      replace_all(token, pad, "");
      if (clean) {
        clean_up(token);
        replace_all(token, delimiter, " ");
      }
      if (!token.empty()) out.push_back(std::move(token));
    }
    tokens = std::move(out);
  });
}

std::unique_ptr<const TokenDecoder> make_sequence(const JsonFields& fields) {
  auto parts = std::make_shared<std::vector<std::unique_ptr<const TokenDecoder>>>();
  for (const Json& part : fields.array("decoders")) {
    if (auto made = make_decoder(part)) parts->push_back(std::move(made));
  }
  return stage([parts](Tokens& tokens) {
    for (const auto& part : *parts) part->decode(tokens);
  });
}

}  // namespace

std::unique_ptr<const TokenDecoder> make_decoder(const Json& json) {
  if (json.is_null()) return nullptr;
  const JsonFields fields(json, "decoder");
  const std::string kind = fields.type();
  if (kind == "ByteLevel") return stage(byte_level);
  if (kind == "ByteFallback") return stage(byte_fallback);
  if (kind == "WordPiece") return make_word_piece(fields);
  if (kind == "Metaspace") return make_metaspace(fields);
  if (kind == "Strip") return make_strip(fields);
  if (kind == "CTC") return make_ctc(fields);
  if (kind == "Sequence") return make_sequence(fields);
  if (kind == "Fuse") {
    return stage([](Tokens& tokens) { tokens.assign(1, joined(tokens)); });
  }
  if (kind == "BPEDecoder") {
    return stage([suffix = fields.text("suffix", "</w>")](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        replace_all(tokens[i], suffix, i + 1 < tokens.size() ? " " : "");
      }
    });
  }
  if (kind == "Replace") {
    return stage([pattern = std::make_shared<TextPattern>(fields.at("pattern")),
                  content = fields.text("content")](Tokens& tokens) {
      for (std::string& token : tokens) token = pattern->replace(token, content);
    });
  }
  fields.refuse_type();
}

}  // namespace phx
