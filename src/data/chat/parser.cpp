#include <algorithm>

#include "data/chat/lexer.h"
#include "data/chat/syntax.h"
#include "data/chat/unicode_text.h"

namespace phx::jinja {
namespace {

constexpr int kMaxHeight = 200;  // of an expression
constexpr int kMaxOpen = 60;     // brackets, or statements, inside of each other

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body run() {
    Body body = statements({});
    if (current().type != Token::Type::end) fail("unexpected " + describe(current()));
    return body;
  }

 private:
  using Type = Token::Type;
  using Names = std::vector<std::string_view>;

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
    explicit Opened(Parser& parser) : parser_(parser) {
      if (++parser_.open_ > kMaxOpen)
        parser_.fail(str_cat("brackets or statements are nested more than ", kMaxOpen, " deep"));
    }
    ~Opened() { --parser_.open_; }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    Parser& parser_;
  };

  // ---- expressions

  ExprPtr node(Expr::Kind kind, int line, std::vector<ExprPtr> parts = {}, std::string name = {}) {
    auto made = std::make_unique<Expr>(Expr{.kind = kind, .line = line, .name = std::move(name)});
    made->parts = std::move(parts);
    return measured(std::move(made));
  }

  ExprPtr measured(ExprPtr made) {
    const auto over = [&](const ExprPtr& part) {
      if (part) made->height = std::max(made->height, part->height + 1);
    };
    for (const ExprPtr& part : made->parts) over(part);
    for (const ExprPtr& part : made->arguments.positional) over(part);
    for (const auto& [name, part] : made->arguments.named) over(part);
    over(made->arguments.star);
    over(made->arguments.double_star);
    if (made->height > kMaxHeight)
      syntax_error(made->line, str_cat("the expression is nested more than ", kMaxHeight, " deep"));
    return made;
  }

  template <class... Parts>
  static std::vector<ExprPtr> parts(Parts&&... all) {
    std::vector<ExprPtr> made;
    (made.push_back(std::move(all)), ...);
    return made;
  }

  ExprPtr expression() {
    Opened opened(*this);
    const int line = current().line;
    ExprPtr value = disjunction();
    while (skip_name("if")) {
      ExprPtr condition = disjunction(), otherwise;
      if (skip_name("else")) otherwise = expression();
      value = node(Expr::Kind::conditional, line,
                   parts(std::move(condition), std::move(value), std::move(otherwise)));
    }
    return value;
  }

  ExprPtr disjunction() {
    ExprPtr left = conjunction();
    for (int line = current().line; skip_name("or"); line = current().line)
      left = node(Expr::Kind::or_, line, parts(std::move(left), conjunction()));
    return left;
  }

  ExprPtr conjunction() {
    ExprPtr left = negation();
    for (int line = current().line; skip_name("and"); line = current().line)
      left = node(Expr::Kind::and_, line, parts(std::move(left), negation()));
    return left;
  }

  ExprPtr negation() {
    if (!at_name("not")) return comparison();
    Opened opened(*this);
    const int line = next().line;
    return node(Expr::Kind::not_, line, parts(negation()));
  }

  ExprPtr comparison() {
    const int line = current().line;
    std::vector<ExprPtr> operands = parts(sum());
    std::vector<std::string> names;
    while (true) {
      static constexpr std::string_view kOperations[] = {"==", "!=", "<", "<=", ">", ">="};
      if (current().type == Type::operation &&
          std::ranges::find(kOperations, current().text) != std::end(kOperations)) {
        names.push_back(next().text);
      } else if (skip_name("in")) {
        names.emplace_back("in");
      } else if (at_name("not") && look().is_name("in")) {
        next();
        next();
        names.emplace_back("not in");
      } else {
        break;
      }
      operands.push_back(sum());
    }
    if (names.empty()) return std::move(operands[0]);
    ExprPtr made = node(Expr::Kind::compare, line, std::move(operands));
    made->names = std::move(names);
    return made;
  }

  ExprPtr sum() {
    ExprPtr left = concatenation();
    while (at_operation("+") || at_operation("-")) {
      const Token& operation = next();
      left = node(Expr::Kind::binary, operation.line, parts(std::move(left), concatenation()),
                  operation.text);
    }
    return left;
  }

  ExprPtr concatenation() {
    const int line = current().line;
    std::vector<ExprPtr> all = parts(product());
    while (skip_operation("~")) all.push_back(product());
    return all.size() == 1 ? std::move(all[0]) : node(Expr::Kind::concat, line, std::move(all));
  }

  ExprPtr product() {
    ExprPtr left = power();
    while (at_operation("*") || at_operation("/") || at_operation("//") || at_operation("%")) {
      const Token& operation = next();
      left =
          node(Expr::Kind::binary, operation.line, parts(std::move(left), power()), operation.text);
    }
    return left;
  }

  ExprPtr power() {
    ExprPtr left = unary(/*with_filters=*/true);
    while (at_operation("**")) {
      const Token& operation = next();
      left = node(Expr::Kind::binary, operation.line, parts(std::move(left), unary(true)), "**");
    }
    return left;
  }

  ExprPtr unary(bool with_filters) {
    ExprPtr value;
    if (at_operation("-") || at_operation("+")) {
      Opened opened(*this);
      const Token& sign = next();
      value = node(sign.text == "-" ? Expr::Kind::negate : Expr::Kind::plus, sign.line,
                   parts(unary(false)));
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
  }

  ExprPtr constant(int line, Value value) {
    ExprPtr made = node(Expr::Kind::constant, line);
    made->constant = std::move(value);
    return made;
  }

  ExprPtr primary() {
    const Token& token = current();
    const int line = token.line;
    switch (token.type) {
      case Type::name: {
        const std::string& name = next().text;
        if (name == "true" || name == "True") return constant(line, Value::of(true));
        if (name == "false" || name == "False") return constant(line, Value::of(false));
        if (name == "none" || name == "None") return constant(line, none());
        for (Macro* macro : macros_) {
          macro->uses_caller |= name == "caller";
          macro->uses_varargs |= name == "varargs";
          macro->uses_kwargs |= name == "kwargs";
        }
        return node(Expr::Kind::name, line, {}, name);
      }
      case Type::text: {
        std::string all;
        while (current().type == Type::text) all += next().text;
        return constant(line, text(std::move(all)));
      }
      case Type::integer:
        return constant(line, Value::of(next().integer));
      case Type::real:
        return constant(line, Value::of(next().real));
      default:
        break;
    }
    if (skip_operation("(")) {
      ExprPtr inner = tuple_or_one(/*in_brackets=*/true);
      expect_operation(")");
      return inner;
    }
    if (at_operation("[")) return list_display();
    if (at_operation("{")) return dict_display();
    fail("unexpected " + describe(token));
  }

  bool at_tuple_end() const {
    return current().type == Type::variable_end || current().type == Type::block_end ||
           at_operation(")");
  }

  // a, b, c without brackets of its own is a tuple.
  ExprPtr tuple_or_one(bool in_brackets = false, bool conditional = true,
                       std::string_view end_name = {}) {
    const int line = current().line;
    std::vector<ExprPtr> all;
    bool is_tuple = false;
    while (true) {
      if (at_tuple_end() || (!end_name.empty() && at_name(end_name))) break;
      all.push_back(conditional ? expression() : disjunction());
      if (!skip_operation(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && !all.empty()) return std::move(all[0]);
    if (!is_tuple && !in_brackets)
      fail("expected an expression, but there is " + describe(current()));
    return node(Expr::Kind::tuple, line, std::move(all));
  }

  ExprPtr list_display() {
    const int line = next().line;
    std::vector<ExprPtr> all;
    while (!at_operation("]")) {
      all.push_back(expression());
      if (!skip_operation(",")) break;
    }
    expect_operation("]");
    return node(Expr::Kind::list, line, std::move(all));
  }

  ExprPtr dict_display() {
    const int line = next().line;
    std::vector<ExprPtr> all;
    while (!at_operation("}")) {
      all.push_back(expression());
      expect_operation(":");
      all.push_back(expression());
      if (!skip_operation(",")) break;
    }
    expect_operation("}");
    return node(Expr::Kind::dict, line, std::move(all));
  }

  ExprPtr postfix(ExprPtr value) {
    while (true) {
      if (at_operation("."))
        value = attribute(std::move(value));
      else if (at_operation("["))
        value = subscript(std::move(value));
      else if (at_operation("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  ExprPtr attribute(ExprPtr value) {
    const int line = next().line;
    if (current().type == Type::integer)
      return node(Expr::Kind::item, line,
                  parts(std::move(value), constant(line, Value::of(next().integer))));
    return node(Expr::Kind::attribute, line, parts(std::move(value)), expect_name());
  }

  ExprPtr subscript(ExprPtr value) {
    const int line = next().line;
    const auto part = [&]() -> ExprPtr {
      return at_operation(":") || at_operation("]") ? nullptr : expression();
    };
    ExprPtr first = part();
    if (first && at_operation("]")) {
      next();
      return node(Expr::Kind::item, line, parts(std::move(value), std::move(first)));
    }
    expect_operation(":");
    ExprPtr last = part(), step;
    if (skip_operation(":")) step = part();
    expect_operation("]");
    return node(Expr::Kind::slice, line,
                parts(std::move(value), std::move(first), std::move(last), std::move(step)));
  }

  Arguments call_arguments() {
    expect_operation("(");
    Arguments made;
    while (!at_operation(")")) {
      if (skip_operation("**")) {
        if (made.double_star) fail("a call has one ** at most");
        made.double_star = expression();
      } else if (skip_operation("*")) {
        if (made.star || made.double_star) fail("a call has one * at most, before any **");
        made.star = expression();
      } else if (current().type == Type::name && look().is_operation("=")) {
        if (made.double_star) fail("an argument with a name comes before **");
        std::string name = next().text;
        next();
        made.named.emplace_back(std::move(name), expression());
      } else {
        if (!made.named.empty() || made.star || made.double_star)
          fail("arguments without a name come before all others");
        made.positional.push_back(expression());
      }
      if (!skip_operation(",")) break;
    }
    expect_operation(")");
    return made;
  }

  ExprPtr call(ExprPtr value) {
    const int line = current().line;
    ExprPtr made = node(Expr::Kind::call, line, parts(std::move(value)));
    made->arguments = call_arguments();
    return measured(std::move(made));
  }

  ExprPtr filters_and_tests(ExprPtr value) {
    while (true) {
      if (skip_operation("|"))
        value = filter(std::move(value));
      else if (at_name("is"))
        value = test(std::move(value));
      else if (at_operation("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_operation(".")) name += "." + expect_name();
    return name;
  }

  ExprPtr filter(ExprPtr value) {  // the | is behind us
    const int line = current().line;
    const std::string name = dotted_name();
    if (!has_filter(name)) syntax_error(line, str_cat("the filter '", name, "' is not supported"));
    ExprPtr made = node(Expr::Kind::filter, line, parts(std::move(value)), name);
    if (at_operation("(")) made->arguments = call_arguments();
    return measured(std::move(made));
  }

  ExprPtr test(ExprPtr value) {
    const int line = next().line;
    const bool negated = skip_name("not");
    const std::string name = dotted_name();
    if (!has_test(name)) syntax_error(line, str_cat("the test '", name, "' is not supported"));
    ExprPtr made = node(Expr::Kind::test, line, parts(std::move(value)), name);
    const Token& token = current();
    const bool argument = token.type == Type::name || token.type == Type::text ||
                          token.type == Type::integer || token.type == Type::real ||
                          token.is_operation("[") || token.is_operation("{");
    if (token.is_operation("(")) {
      made->arguments = call_arguments();
    } else if (argument && !at_name("else") && !at_name("or") && !at_name("and")) {
      if (at_name("is")) fail("tests cannot be chained with `is`");
      Opened opened(*this);
      made->arguments.positional.push_back(postfix(primary()));
    }
    made = measured(std::move(made));
    return negated ? node(Expr::Kind::not_, line, parts(std::move(made))) : std::move(made);
  }

  // ---- statements

  Body statements(const Names& ends) {
    Body body;
    while (true) {
      const Token& token = current();
      if (token.type == Type::data) {
        body.push_back(std::make_unique<Stmt>(
            Stmt{.kind = Stmt::Kind::text, .line = token.line, .text = token.text}));
        next();
      } else if (token.type == Type::variable_begin) {
        next();
        auto made = std::make_unique<Stmt>(Stmt{.kind = Stmt::Kind::print, .line = token.line});
        made->exprs.push_back(tuple_or_one());
        expect(Type::variable_end);
        body.push_back(std::move(made));
      } else if (token.type == Type::block_begin) {
        next();
        if (std::ranges::any_of(ends, [&](auto name) { return at_name(name); })) return body;
        body.push_back(statement());
        expect(Type::block_end);
      } else {
        if (!ends.empty())
          fail(str_cat("the template ends, but {% ", ends.back(), " %} is missing"));
        return body;
      }
    }
  }

  // The body of a statement whose head ends here; the end tag's name is taken unless it may be one
  // of several.
  Body block(const Names& ends) {
    Opened opened(*this);
    skip_operation(":");
    expect(Type::block_end);
    Body body = statements(ends);
    if (ends.size() == 1) next();
    return body;
  }

  // A body whose text goes elsewhere: {% break %} does not reach a loop outside of it.
  Body captured(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = block({end});
    loops_ = loops;
    return body;
  }

  std::unique_ptr<Stmt> statement() {
    const Token& token = current();
    if (token.type != Type::name) fail("a statement begins with a name, not " + describe(token));
    auto made = std::make_unique<Stmt>(Stmt{.kind = Stmt::Kind::text, .line = token.line});
    const std::string& name = next().text;
    if (name == "if") {
      if_statement(*made);
    } else if (name == "for") {
      for_statement(*made);
    } else if (name == "set") {
      set_statement(*made);
    } else if (name == "macro") {
      made->kind = Stmt::Kind::macro;
      std::string macro_name = expect_name();
      macro(*made, std::move(macro_name), "endmacro", /*signature=*/true);
    } else if (name == "call") {
      call_statement(*made);
    } else if (name == "filter") {
      made->kind = Stmt::Kind::filter_block;
      made->exprs.push_back(filter_chain(filter(nullptr)));
      made->bodies.push_back(captured("endfilter"));
    } else if (name == "with") {
      with_statement(*made);
    } else if (name == "generation") {
      made->kind = Stmt::Kind::generation;
      made->bodies.push_back(captured("endgeneration"));
    } else if (name == "print") {
      made->kind = Stmt::Kind::print;
      while (current().type != Type::block_end) {
        made->exprs.push_back(expression());
        if (!skip_operation(",")) break;
      }
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) syntax_error(token.line, str_cat("{% ", name, " %} is outside of a loop"));
      made->kind = name == "break" ? Stmt::Kind::break_ : Stmt::Kind::continue_;
    } else {
      unknown_statement(token.line, name);
    }
    return made;
  }

  [[noreturn]] static void unknown_statement(int line, const std::string& name) {
    static constexpr std::string_view kJinjas[] = {"block",  "extends", "include",
                                                   "import", "from",    "autoescape"};
    if (std::ranges::find(kJinjas, name) != std::end(kJinjas))
      syntax_error(line, str_cat("the statement '", name, "' is not supported: a chat template is ",
                                 "one file without escaping"));
    if (name.starts_with("end") || name == "else" || name == "elif")
      syntax_error(line, str_cat("{% ", name, " %} closes nothing that is open here"));
    syntax_error(line, str_cat("Jinja has no statement '", name, "'"));
  }

  void if_statement(Stmt& made) {
    made.kind = Stmt::Kind::if_;
    while (true) {
      made.exprs.push_back(tuple_or_one(false, /*conditional=*/false));
      made.bodies.push_back(block({"elif", "else", "endif"}));
      const std::string& end = next().text;
      if (end == "elif") continue;
      if (end == "else") made.bodies.push_back(block({"endif"}));
      return;
    }
  }

  void for_statement(Stmt& made) {
    made.kind = Stmt::Kind::for_;
    made.target = target(/*attributes=*/false, "in");
    if (mentions(*made.target, "loop"))
      syntax_error(made.line, "a loop's variable cannot be called `loop`");
    if (!skip_name("in")) fail("expected 'in', but there is " + describe(current()));
    made.exprs.push_back(tuple_or_one(false, /*conditional=*/false, "recursive"));
    made.exprs.push_back(skip_name("if") ? expression() : nullptr);
    if (at_name("recursive")) fail("recursive loops are not supported");
    ++loops_;
    made.bodies.push_back(block({"endfor", "else"}));
    --loops_;
    if (next().text == "else") made.bodies.push_back(block({"endfor"}));
  }

  static bool mentions(const Expr& expr, std::string_view name) {
    if (expr.kind == Expr::Kind::name && expr.name == name) return true;
    return std::ranges::any_of(expr.parts, [&](const auto& part) { return mentions(*part, name); });
  }

  // What is assigned to: a name, an attribute of a namespace, or a tuple of these.
  ExprPtr target(bool attributes, std::string_view end_name = {}) {
    const int line = current().line;
    std::vector<ExprPtr> all;
    bool is_tuple = false;
    while (true) {
      if (!all.empty() &&
          (at_tuple_end() || at_operation("=") || (!end_name.empty() && at_name(end_name))))
        break;
      all.push_back(single_target(attributes));
      if (!skip_operation(",")) break;
      is_tuple = true;
    }
    return is_tuple ? node(Expr::Kind::tuple, line, std::move(all)) : std::move(all[0]);
  }

  ExprPtr single_target(bool attributes) {
    const int line = current().line;
    if (skip_operation("(")) {
      Opened opened(*this);
      ExprPtr inner = target(attributes);
      expect_operation(")");
      return inner;
    }
    const std::string name = expect_name();
    static constexpr std::string_view kConstants[] = {"true",  "True", "false",
                                                      "False", "none", "None"};
    if (std::ranges::find(kConstants, name) != std::end(kConstants))
      syntax_error(line, str_cat("nothing can be assigned to ", name));
    ExprPtr made = node(Expr::Kind::name, line, {}, name);
    if (!at_operation(".")) return made;
    if (!attributes) fail("only {% set %} assigns to attributes");
    next();
    return node(Expr::Kind::attribute, line, parts(std::move(made)), expect_name());
  }

  void set_statement(Stmt& made) {
    made.target = target(/*attributes=*/true);
    if (skip_operation("=")) {
      made.kind = Stmt::Kind::set;
      made.exprs.push_back(tuple_or_one());
      return;
    }
    made.kind = Stmt::Kind::set_block;
    made.exprs.push_back(skip_operation("|") ? filter_chain(filter(nullptr)) : nullptr);
    made.bodies.push_back(captured("endset"));
  }

  ExprPtr filter_chain(ExprPtr value) {
    while (skip_operation("|")) value = filter(std::move(value));
    return value;
  }

  void macro(Stmt& made, std::string name, std::string_view end, bool signature) {
    made.macro = std::make_unique<Macro>();
    made.macro->name = std::move(name);
    if (signature) parameters(*made.macro);
    macros_.push_back(made.macro.get());
    made.macro->body = captured(end);
    macros_.pop_back();
  }

  void parameters(Macro& macro) {
    expect_operation("(");
    while (!at_operation(")")) {
      macro.parameters.push_back(expect_name());
      if (skip_operation("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        fail("a parameter without a default follows one with a default");
      if (!skip_operation(",")) break;
    }
    expect_operation(")");
  }

  void call_statement(Stmt& made) {
    made.kind = Stmt::Kind::call;
    auto head = std::make_unique<Macro>();
    if (at_operation("(")) parameters(*head);
    ExprPtr called = expression();
    if (called->kind != Expr::Kind::call) syntax_error(made.line, "{% call %} needs a call");
    made.exprs.push_back(std::move(called));
    macro(made, "caller", "endcall", /*signature=*/false);
    made.macro->parameters = std::move(head->parameters);
    made.macro->defaults = std::move(head->defaults);
  }

  void with_statement(Stmt& made) {
    made.kind = Stmt::Kind::with;
    while (current().type != Type::block_end) {
      made.targets.push_back(target(/*attributes=*/false));
      expect_operation("=");
      made.exprs.push_back(expression());
      if (!skip_operation(",")) break;
    }
    made.bodies.push_back(block({"endwith"}));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int open_ = 0, loops_ = 0;
  std::vector<Macro*> macros_;  // whose bodies we are in
};

}  // namespace

Body parse_template(std::string_view source) {
  PHX_CHECK(is_valid_utf8(source), "the template is not valid UTF-8");
  return Parser(source).run();
}

}  // namespace phx::jinja
