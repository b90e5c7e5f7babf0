// The statements of a template.
#include <algorithm>

#include "phalanx/text/jinja/expression_parser.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Body run() {
    Body body = statements({});
    if (current().type != Token::Type::end) fail("unexpected " + describe(current()));
    return body;
  }

 private:
  using Names = std::vector<std::string_view>;

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

  int loops_ = 0;  // that a {% break %} would end
};

}  // namespace

Body parse_template(std::string_view source) {
  PHX_CHECK(is_valid_utf8(source), "the template is not valid UTF-8");
  return Parser(source).run();
}

}  // namespace phx::jinja
