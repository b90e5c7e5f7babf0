// Expressions: the other half of the renderer.
#include "phalanx/text/jinja/renderer.h"

namespace phx::jinja {

Value Renderer::evaluate(const Expr& expr, Scope& scope) {
  Entered entered(*this);
  line_ = expr.line;
  switch (expr.kind) {
    case Expr::Kind::constant:
      return expr.constant;
    case Expr::Kind::name:
      return lookup(expr, scope);
    case Expr::Kind::list:
    case Expr::Kind::tuple:
    case Expr::Kind::dict:
      return evaluate_display(expr, scope);
    case Expr::Kind::attribute:
      return attribute(context_, evaluate(*expr.parts[0], scope), expr.name);
    case Expr::Kind::item:
    case Expr::Kind::binary:
      return evaluate_binary(expr, scope);
    case Expr::Kind::slice:
      return evaluate_slice(expr, scope);
    case Expr::Kind::call:
      return evaluate_call(expr, scope, nullptr);
    case Expr::Kind::filter:
    case Expr::Kind::test:
      return evaluate_filter(expr, scope, nullptr);
    case Expr::Kind::compare:
      return Value::of(evaluate_comparison(expr, scope));
    case Expr::Kind::concat:
      return evaluate_concat(expr, scope);
    default:
      return evaluate_logic(expr, scope);
  }
}

Value Renderer::lookup(const Expr& expr, Scope& scope) {
  if (const Value* found = scope.find(expr.name)) return *found;
  if (has_function(expr.name)) return function(expr.name);
  return undefined("'" + expr.name + "' is undefined");
}

Value Renderer::evaluate_display(const Expr& expr, Scope& scope) {
  Values items;
  for (const ExprPtr& part : expr.parts) items.push_back(evaluate(*part, scope));
  if (expr.kind == Expr::Kind::list) return list(std::move(items));
  if (expr.kind == Expr::Kind::tuple) return tuple(std::move(items));
  std::vector<std::pair<Value, Value>> pairs;
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    pairs.emplace_back(std::move(items[i]), std::move(items[i + 1]));
  return dict(std::move(pairs), context_.budget);
}

Value Renderer::evaluate_binary(const Expr& expr, Scope& scope) {
  const Value left = evaluate(*expr.parts[0], scope);
  const Value right = evaluate(*expr.parts[1], scope);
  line_ = expr.line;
  return expr.kind == Expr::Kind::item ? item(context_, left, right)
                                       : binary(context_, expr.name, left, right);
}

Value Renderer::evaluate_slice(const Expr& expr, Scope& scope) {
  Value parts[4];
  for (int i = 0; i < 4; ++i)
    parts[i] = expr.parts[size_t(i)] ? evaluate(*expr.parts[size_t(i)], scope) : none();
  line_ = expr.line;
  return slice(context_, parts[0], parts[1], parts[2], parts[3]);
}

Call Renderer::evaluate_arguments(const Arguments& arguments, Scope& scope) {
  Call call;
  for (const ExprPtr& part : arguments.positional)
    call.positional.push_back(evaluate(*part, scope));
  for (const auto& [name, part] : arguments.named)
    call.named.emplace_back(name, evaluate(*part, scope));
  if (arguments.star) {
    for (Value& item : elements(evaluate(*arguments.star, scope), context_.budget))
      call.positional.push_back(std::move(item));
  }
  if (arguments.double_star) {
    const Value all = evaluate(*arguments.double_star, scope);
    if (!all.is(Kind::dict)) fault("** needs a dict, not " + type_name(all));
    for (const auto& [name, value] : all.get<Dict>().items) {
      if (!name.is(Kind::text)) fault("the names of arguments are strings");
      context_.budget.spend();
      call.named.emplace_back(name.text(), value);
    }
  }
  return call;
}

Value Renderer::evaluate_call(const Expr& expr, Scope& scope, const Value* caller) {
  const Value callee = evaluate(*expr.parts[0], scope);
  Call call = evaluate_arguments(expr.arguments, scope);
  if (caller != nullptr) call.named.emplace_back("caller", *caller);
  line_ = expr.line;
  if (callee.is(Kind::undefined)) fault(undefined_message(callee));
  if (!callee.is(Kind::callable)) fault("a " + type_name(callee) + " cannot be called");
  const Callable& callable = callee.get<Callable>();
  switch (callable.what) {
    case Callable::What::function:
      return call_function(context_, callable.name, call);
    case Callable::What::method:
      return call_method(context_, callable.self, callable.name, call);
    case Callable::What::macro:
      return call_macro(callable, std::move(call));
  }
  return {};
}

// Filters and tests; `input` is what the innermost filter of a block works on.
Value Renderer::evaluate_filter(const Expr& expr, Scope& scope, const Value* input) {
  Value value;
  if (expr.parts[0] == nullptr)
    value = *input;
  else if (input != nullptr)
    value = evaluate_filter(*expr.parts[0], scope, input);
  else
    value = evaluate(*expr.parts[0], scope);
  const Call call = evaluate_arguments(expr.arguments, scope);
  line_ = expr.line;
  if (expr.kind == Expr::Kind::test) return Value::of(apply_test(context_, expr.name, value, call));
  return apply_filter(context_, expr.name, value, call);
}

bool Renderer::evaluate_comparison(const Expr& expr, Scope& scope) {
  Value left = evaluate(*expr.parts[0], scope);
  for (size_t i = 0; i < expr.names.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1], scope);
    line_ = expr.line;
    if (!compare(context_, expr.names[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Renderer::evaluate_concat(const Expr& expr, Scope& scope) {
  std::string all;
  for (const ExprPtr& part : expr.parts) {
    const Value value = evaluate(*part, scope);
    const std::string piece = to_text(value, context_.budget);
    context_.budget.spend_bytes(all.size() / 8 + piece.size());
    all += piece;
  }
  return text(std::move(all));
}

Value Renderer::evaluate_logic(const Expr& expr, Scope& scope) {
  const Value first = evaluate(*expr.parts[0], scope);
  switch (expr.kind) {
    case Expr::Kind::not_:
      return Value::of(!truth(first));
    case Expr::Kind::and_:
      return truth(first) ? evaluate(*expr.parts[1], scope) : first;
    case Expr::Kind::or_:
      return truth(first) ? first : evaluate(*expr.parts[1], scope);
    case Expr::Kind::negate:
      return negated(first);
    case Expr::Kind::plus:
      if (first.is(Kind::undefined)) fault(undefined_message(first));
      if (!is_number(first)) fault("'+' does not go before a " + type_name(first));
      return first.is(Kind::boolean) ? Value::of(first.integer()) : first;
    case Expr::Kind::conditional:
      if (truth(first)) return evaluate(*expr.parts[1], scope);
      if (expr.parts[2]) return evaluate(*expr.parts[2], scope);
      return undefined("the inline if-expression on line " + std::to_string(expr.line) +
                       " has no else and its condition is false");
    default:
      PHX_ASSERT(false, "an expression of no known kind");
      return {};
  }
}

}  // namespace phx::jinja
