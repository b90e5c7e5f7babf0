// What may follow a value in an expression: .name, [index], (arguments), |filter and `is test`.
#include "phalanx/text/jinja/expression_parser.h"

namespace phx::jinja {

ExprPtr ExpressionParser::postfix(ExprPtr value) {
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

ExprPtr ExpressionParser::attribute(ExprPtr value) {
  const int line = next().line;
  if (current().type == Type::integer)
    return node(Expr::Kind::item, line,
                parts(std::move(value), constant(line, Value::of(next().integer))));
  return node(Expr::Kind::attribute, line, parts(std::move(value)), expect_name());
}

ExprPtr ExpressionParser::subscript(ExprPtr value) {
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

Arguments ExpressionParser::call_arguments() {
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

ExprPtr ExpressionParser::call(ExprPtr value) {
  const int line = current().line;
  ExprPtr made = node(Expr::Kind::call, line, parts(std::move(value)));
  made->arguments = call_arguments();
  return measured(std::move(made));
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr value) {
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

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip_operation(".")) name += "." + expect_name();
  return name;
}

ExprPtr ExpressionParser::filter(ExprPtr value) {
  const int line = current().line;
  const std::string name = dotted_name();
  if (!has_filter(name)) syntax_error(line, str_cat("the filter '", name, "' is not supported"));
  ExprPtr made = node(Expr::Kind::filter, line, parts(std::move(value)), name);
  if (at_operation("(")) made->arguments = call_arguments();
  return measured(std::move(made));
}

ExprPtr ExpressionParser::test(ExprPtr value) {
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

}  // namespace phx::jinja
