#include "phalanx/text/jinja/expression_parser.h"

namespace phx::jinja {
namespace {

constexpr int kMaxHeight = 200;  // of an expression
constexpr int kMaxOpen = 60;     // brackets, or statements, inside of each other

}  // namespace

ExpressionParser::Opened::Opened(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.open_ > kMaxOpen)
    parser_.fail(str_cat("brackets or statements are nested more than ", kMaxOpen, " deep"));
}

ExprPtr ExpressionParser::node(Expr::Kind kind, int line, std::vector<ExprPtr> parts,
                               std::string name) {
  auto made = std::make_unique<Expr>(Expr{.kind = kind, .line = line, .name = std::move(name)});
  made->parts = std::move(parts);
  return measured(std::move(made));
}

ExprPtr ExpressionParser::measured(ExprPtr made) {
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

ExprPtr ExpressionParser::expression() {
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

ExprPtr ExpressionParser::disjunction() {
  ExprPtr left = conjunction();
  for (int line = current().line; skip_name("or"); line = current().line)
    left = node(Expr::Kind::or_, line, parts(std::move(left), conjunction()));
  return left;
}

ExprPtr ExpressionParser::conjunction() {
  ExprPtr left = negation();
  for (int line = current().line; skip_name("and"); line = current().line)
    left = node(Expr::Kind::and_, line, parts(std::move(left), negation()));
  return left;
}

ExprPtr ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  Opened opened(*this);
  const int line = next().line;
  return node(Expr::Kind::not_, line, parts(negation()));
}

ExprPtr ExpressionParser::comparison() {
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

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concatenation();
  while (at_operation("+") || at_operation("-")) {
    const Token& operation = next();
    left = node(Expr::Kind::binary, operation.line, parts(std::move(left), concatenation()),
                operation.text);
  }
  return left;
}

ExprPtr ExpressionParser::concatenation() {
  const int line = current().line;
  std::vector<ExprPtr> all = parts(product());
  while (skip_operation("~")) all.push_back(product());
  return all.size() == 1 ? std::move(all[0]) : node(Expr::Kind::concat, line, std::move(all));
}

ExprPtr ExpressionParser::product() {
  ExprPtr left = power();
  while (at_operation("*") || at_operation("/") || at_operation("//") || at_operation("%")) {
    const Token& operation = next();
    left =
        node(Expr::Kind::binary, operation.line, parts(std::move(left), power()), operation.text);
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  ExprPtr left = unary(/*with_filters=*/true);
  while (at_operation("**")) {
    const Token& operation = next();
    left = node(Expr::Kind::binary, operation.line, parts(std::move(left), unary(true)), "**");
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
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

ExprPtr ExpressionParser::constant(int line, Value value) {
  ExprPtr made = node(Expr::Kind::constant, line);
  made->constant = std::move(value);
  return made;
}

ExprPtr ExpressionParser::primary() {
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

bool ExpressionParser::at_tuple_end() const {
  return current().type == Type::variable_end || current().type == Type::block_end ||
         at_operation(")");
}

ExprPtr ExpressionParser::tuple_or_one(bool in_brackets, bool conditional,
                                       std::string_view end_name) {
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

ExprPtr ExpressionParser::list_display() {
  const int line = next().line;
  std::vector<ExprPtr> all;
  while (!at_operation("]")) {
    all.push_back(expression());
    if (!skip_operation(",")) break;
  }
  expect_operation("]");
  return node(Expr::Kind::list, line, std::move(all));
}

ExprPtr ExpressionParser::dict_display() {
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

}  // namespace phx::jinja
