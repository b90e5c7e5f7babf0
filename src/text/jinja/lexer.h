// A template cut into tokens, the way Jinja2 does with trim_blocks and lstrip_blocks on, as the
// transformers library sets them: the line feed after a {% %} goes, and so do blanks before it at
// the start of a line; `-` strips all white space on its side, `+` keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace phx::jinja {

// A template that cannot be read; `what` begins with "line N: ".
[[noreturn]] void syntax_error(int line, const std::string& message);

struct Token {
  enum class Type {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    text,
    integer,
    real,
    operation,
    end,
  };
  Type type;
  int line;
  std::string text = {};  // of data, a name, a string (unescaped) or an operation
  int64_t integer = 0;
  double real = 0;

  bool is_name(std::string_view value) const { return type == Type::name && text == value; }
  bool is_operation(std::string_view value) const {
    return type == Type::operation && text == value;
  }
};

std::string describe(const Token& token);  // for error texts

std::vector<Token> tokenize(std::string_view source);

}  // namespace phx::jinja
