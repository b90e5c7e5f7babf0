#include "phalanx/text/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "phalanx/text/jinja/string_escapes.h"
#include "phalanx/text/jinja/unicode_text.h"
#include "phalanx/text/jinja/value.h"

namespace phx::jinja {

void syntax_error(int line, const std::string& message) {
  fault(str_cat("line ", line, ": ", message));
}

std::string describe(const Token& token) {
  using Type = Token::Type;
  switch (token.type) {
    case Type::data:
      return "text";
    case Type::variable_begin:
      return "{{";
    case Type::variable_end:
      return "the end of the expression, }}";
    case Type::block_begin:
      return "{%";
    case Type::block_end:
      return "the end of the statement, %}";
    case Type::name:
    case Type::operation:
      return "'" + token.text + "'";
    case Type::text:
      return "the string " + quote(token.text);
    case Type::integer:
    case Type::real:
      return "a number";
    case Type::end:
      return "the end of the template";
  }
  return "";
}

namespace {

// One kind of line end, and none after the last line: as Jinja reads a source.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) root();
    add(Token::Type::end);
    return std::move(tokens_);
  }

 private:
  using Type = Token::Type;

  Token& add(Type type, std::string text = {}) {
    tokens_.push_back({.type = type, .line = line_, .text = std::move(text)});
    return tokens_.back();
  }

  // Goes on behind `size` bytes.
  std::string_view take(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    line_ += int(std::ranges::count(taken, '\n'));
    at_line_start_ = !taken.empty() && taken.back() == '\n';
    return taken;
  }

  size_t spaces(size_t from) const {  // white space from there on, in bytes
    const std::string_view tail = rest_.substr(from);
    return tail.size() - strip(tail, Side::left).size();
  }

  // {% raw %} at `at`: its length, 0 if it is something else.
  size_t raw_tag(size_t at, std::string_view name, bool trims_line) const {
    size_t i = at + 2;
    if (i < rest_.size() && (rest_[i] == '-' || rest_[i] == '+')) ++i;
    i += spaces(i);
    if (!rest_.substr(i).starts_with(name)) return 0;
    i += name.size();
    i += spaces(i);
    if (rest_.substr(i).starts_with("-%}")) return i + 3 + spaces(i + 3) - at;
    if (trims_line && rest_.substr(i).starts_with("+%}")) return i + 3 - at;
    if (!rest_.substr(i).starts_with("%}")) return 0;
    i += 2;
    if (trims_line && i < rest_.size() && rest_[i] == '\n') ++i;
    return i - at;
  }

  // Text up to a tag at `at`, without what the tag strips.
  void data_before(size_t at, bool is_variable) {
    std::string_view text = rest_.substr(0, at);
    const char sign = at + 2 < rest_.size() ? rest_[at + 2] : ' ';
    if (sign == '-') {
      text = strip(text, Side::right);
    } else if (sign != '+' && !is_variable) {
      const size_t line_feed = text.rfind('\n');
      const size_t start = line_feed == std::string_view::npos ? 0 : line_feed + 1;
      if ((start > 0 || at_line_start_) && strip(text.substr(start)).empty())
        text = text.substr(0, start);
    }
    if (!text.empty()) add(Type::data, std::string(text));
    take(at);
  }

  void root() {
    size_t at = 0;
    for (;; ++at) {
      at = rest_.find('{', at);
      if (at == std::string_view::npos || at + 1 >= rest_.size()) {
        add(Type::data, std::string(take(rest_.size())));
        return;
      }
      if (const char c = rest_[at + 1]; c == '%' || c == '{' || c == '#') break;
    }
    const char kind = rest_[at + 1];
    if (kind == '%' && raw_tag(at, "raw", /*trims_line=*/false) > 0) {
      const size_t size = raw_tag(at, "raw", false);
      data_before(at, false);
      take(size);
      return raw();
    }
    data_before(at, kind == '{');
    if (kind == '#') return comment();
    add(kind == '{' ? Type::variable_begin : Type::block_begin);
    const bool signed_tag = rest_.size() > 2 && (rest_[2] == '-' || rest_[2] == '+');
    take(signed_tag ? 3 : 2);
    inside(kind == '{');
  }

  void raw() {
    const int line = line_;
    for (size_t at = rest_.find("{%"); at != std::string_view::npos;
         at = rest_.find("{%", at + 1)) {
      const size_t size = raw_tag(at, "endraw", /*trims_line=*/true);
      if (size == 0) continue;
      data_before(at, false);
      take(size);
      return;
    }
    syntax_error(line, "{% raw %} has no {% endraw %}");
  }

  void comment() {
    const int line = line_;
    const bool signed_tag = rest_.size() > 2 && (rest_[2] == '-' || rest_[2] == '+');
    take(signed_tag ? 3 : 2);
    const size_t at = rest_.find("#}");
    if (at == std::string_view::npos) syntax_error(line, "the comment {# has no end #}");
    const char sign = at > 0 ? rest_[at - 1] : ' ';
    size_t end = at + 2;
    if (sign == '-')
      end += spaces(end);
    else if (sign != '+' && end < rest_.size() && rest_[end] == '\n')
      ++end;
    take(end);
  }

  // The tag's end if it is here: its length with what it strips.
  size_t end_of_tag(bool variable) const {
    const std::string_view mark = variable ? "}}" : "%}";
    if (rest_[0] == '-' && rest_.substr(1).starts_with(mark)) return 3 + spaces(3);
    if (!variable && rest_[0] == '+' && rest_.substr(1).starts_with(mark)) return 3;
    if (!rest_.starts_with(mark)) return 0;
    return 2 + (!variable && rest_.size() > 2 && rest_[2] == '\n' ? 1 : 0);
  }

  void inside(bool variable) {
    const int line = line_;
    while (!rest_.empty()) {
      if (const size_t size = open_.empty() ? end_of_tag(variable) : 0; size > 0) {
        add(variable ? Type::variable_end : Type::block_end);
        take(size);
        return;
      }
      if (const size_t blanks = spaces(0); blanks > 0)
        take(blanks);
      else
        item();
    }
    syntax_error(line, str_cat(variable ? "{{ has no }}" : "{% has no %}",
                               open_.empty() ? "" : str_cat(": '", open_.back(), "' is missing")));
  }

  void item() {
    const char c = rest_[0];
    if (is_ascii_digit(c)) return number();
    if (is_name_start(c)) {
      size_t end = 1;
      while (end < rest_.size() && (is_name_start(rest_[end]) || is_ascii_digit(rest_[end]))) ++end;
      if (end < rest_.size() && static_cast<unsigned char>(rest_[end]) >= 0x80)
        syntax_error(line_, "names with characters beyond ASCII are not supported");
      add(Type::name, std::string(rest_.substr(0, end)));
      take(end);
    } else if (c == '"' || c == '\'') {
      text(c);
    } else {
      operation();
    }
  }

  void text(char mark) {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != mark) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) syntax_error(line_, str_cat("a string has no closing ", mark));
    const std::string_view body = rest_.substr(1, end - 1);
    std::string meant;
    for (size_t i = 0; i < body.size();) {
      if (body[i] == '\\') {
        unescape(body, ++i, line_, meant);
      } else {
        meant += body[i++];
      }
    }
    add(Type::text, std::move(meant));
    take(end + 1);
  }

  // Digits with single underscores between; the end of them.
  size_t digits(size_t at) const {
    const auto digit = [&](size_t i) { return i < rest_.size() && is_ascii_digit(rest_[i]); };
    if (!digit(at)) return at;
    while (digit(at) || (at < rest_.size() && rest_[at] == '_' && digit(at + 1))) ++at;
    return at;
  }

  void number() {
    if (rest_.size() > 1 && rest_[0] == '0' &&
        std::string_view("xXoObB").find(rest_[1]) != std::string_view::npos)
      syntax_error(line_, "numbers in hexadecimal, octal or binary are not supported");
    size_t end = digits(0);
    bool real = false;
    const bool after_dot = tokens_.back().is_operation(".");  // a.1.2 is (a.1).2
    if (!after_dot && end < rest_.size() && rest_[end] == '.' && digits(end + 1) > end + 1) {
      real = true;
      end = digits(end + 1);
    }
    if (!after_dot && end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      size_t power = end + 1;
      if (power < rest_.size() && (rest_[power] == '+' || rest_[power] == '-')) ++power;
      if (digits(power) > power) {
        real = true;
        end = digits(power);
      }
    }
    std::string plain(rest_.substr(0, end));
    std::erase(plain, '_');
    Token& token = add(real ? Type::real : Type::integer);
    const char* last = plain.data() + plain.size();
    if (real) {
      std::from_chars(plain.data(), last, token.real);
    } else {
      const auto [stop, error] = std::from_chars(plain.data(), last, token.integer);
      if (error != std::errc())
        syntax_error(line_, str_cat("the number ", plain, " is larger than 64 bits hold"));
      if (plain[0] == '0' && plain.find_first_not_of('0') != std::string::npos)
        syntax_error(line_, str_cat("the number ", plain, " begins with 0"));
    }
    take(end);
  }

  void operation() {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-*/%~[](){}><=.:|,;";
    size_t size = 0;
    for (const std::string_view known : kLong)
      if (rest_.starts_with(known)) size = 2;
    const char c = rest_[0];
    if (size == 0 && kShort.find(c) != std::string_view::npos) size = 1;
    if (size == 0)
      syntax_error(line_, str_cat("unexpected character ", quote(first_character(rest_))));
    if (c == '(' || c == '[' || c == '{') {
      open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty() || open_.back() != c)
        syntax_error(line_,
                     str_cat("unexpected '", c, "'",
                             open_.empty() ? "" : str_cat(", expected '", open_.back(), "'")));
      open_.pop_back();
    }
    add(Type::operation, std::string(rest_.substr(0, size)));
    take(size);
  }

  std::string source_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  std::string open_;  // closing brackets that are awaited
  int line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace phx::jinja
