// The tokens of a template as expressions, with Jinja2's precedence: `or` binds loosest, then
// `and`, `not`, comparisons, + and -, ~, * / // %, **, signs, and filters and tests tightest.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "phalanx/text/jinja/lexer.h"
#include "phalanx/text/jinja/syntax.h"

namespace phx::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(tokenize(source)) {}

  using Type = Token::Type;

  // ---- tokens

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return current().type == Type::end ? tokens_[at_] : tokens_[at_++]; }
  bool at_name(std::string_view name) const { return current().is_name(name); }
  bool at_operation(std::string_view text) const { return current().is_operation(text); }
  bool skip_name(std::string_view name) {
    if (!at_name(name)) return false;
    next();
    return true;
  }
  bool skip_operation(std::string_view text) {
    if (!at_operation(text)) return false;
    next();
    return true;
  }
  [[noreturn]] void fail(const std::string& message) const {
    syntax_error(current().line, message);
  }
  void expect_operation(std::string_view text) {
    if (!skip_operation(text))
      fail(str_cat("expected '", text, "', but there is ", describe(current())));
  }
  std::string expect_name() {
    if (current().type != Type::name) fail("expected a name, but there is " + describe(current()));
    return next().text;
  }
  void expect(Type type) {
    if (current().type != type)
      fail(str_cat("expected ", describe({.type = type, .line = 0}), ", but there is ",
                   describe(current())));
    next();
  }

  // Nesting takes stack here and in the renderer.
  class Opened {
   public:
    explicit Opened(ExpressionParser& parser);
    ~Opened() { --parser_.open_; }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // ---- expressions

  ExprPtr node(Expr::Kind kind, int line, std::vector<ExprPtr> parts = {}, std::string name = {});
  ExprPtr measured(ExprPtr made);
  ExprPtr expression();
  ExprPtr disjunction();
  ExprPtr conjunction();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr constant(int line, Value value);
  ExprPtr primary();
  bool at_tuple_end() const;
  // a, b, c without brackets of its own is a tuple.
  ExprPtr tuple_or_one(bool in_brackets = false, bool conditional = true,
                       std::string_view end_name = {});
  ExprPtr list_display();
  ExprPtr dict_display();
  ExprPtr postfix(ExprPtr value);
  ExprPtr attribute(ExprPtr value);
  ExprPtr subscript(ExprPtr value);
  Arguments call_arguments();
  ExprPtr call(ExprPtr value);
  ExprPtr filters_and_tests(ExprPtr value);
  std::string dotted_name();
  ExprPtr filter(ExprPtr value);  // the | is behind us
  ExprPtr test(ExprPtr value);

  template <class... Parts>
  static std::vector<ExprPtr> parts(Parts&&... all) {
    std::vector<ExprPtr> made;
    (made.push_back(std::move(all)), ...);
    return made;
  }

  std::vector<Macro*> macros_;  // whose bodies we are in

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int open_ = 0;
};

}  // namespace phx::jinja
