#include "phalanx/text/jinja/renderer.h"

#include <algorithm>

namespace phx::jinja {

namespace {

// Of statements, expressions and macros inside of each other. Each takes stack: an eighth of the
// usual 8 MiB at most, so that threads with less can render too.
constexpr int kMaxDepth = 600;

}  // namespace

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, held] : names_) {
    if (known != name) continue;
    held = std::move(value);
    return;
  }
  names_.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_)
    for (const auto& [known, value] : scope->names_)
      if (known == name) return &value;
  return nullptr;
}

Renderer::Entered::Entered(Renderer& renderer) : renderer_(renderer) {
  renderer_.context_.budget.spend();
  if (renderer_.depth_ >= kMaxDepth)
    fault("statements, expressions and macros are nested too deep: does a macro call itself?");
  ++renderer_.depth_;
}

Renderer::Renderer(const Value& variables, const RenderOptions& options)
    : context_{.budget = Budget(options.steps), .now = options.now},
      globals_(nullptr),
      watched_(options.watched) {
  PHX_ASSERT(variables.is(Kind::dict), "the variables of a template are a dict");
  for (const auto& [name, value] : variables.get<Dict>().items) globals_.set(name.text(), value);
}

Renderer::~Renderer() {
  // Namespaces may hold each other in a circle.
  for (const auto& space : context_.namespaces) space->items.clear();
}

template <class Work>
auto Renderer::in_scope(Scope* parent, Work&& work) {
  auto scope = std::make_unique<Scope>(parent);
  struct Keeper {
    Renderer& renderer;
    std::unique_ptr<Scope>& scope;
    ~Keeper() {
      if (scope->captured) renderer.kept_.push_back(std::move(scope));
    }
  } keeper{*this, scope};
  return work(*scope);
}

Rendered Renderer::run(const Body& body) {
  out_ = &root_text_;
  in_scope(&globals_, [&](Scope& scope) { return execute(body, scope); });
  return {std::move(root_text_), std::move(generation_), std::move(watched_spans_)};
}

void Renderer::write(std::string_view text) {
  context_.budget.spend_bytes(text.size());
  *out_ += text;
}

std::string Renderer::captured_text(const Body& body, Scope* parent) {
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  struct Restore {
    std::string*& out;
    std::string* outer;
    ~Restore() { out = outer; }
  } restore{out_, outer};
  in_scope(parent, [&](Scope& scope) { return execute(body, scope); });
  return text;
}

// ---- statements

Renderer::Flow Renderer::execute(const Body& body, Scope& scope) {
  for (const auto& stmt : body)
    if (const Flow flow = execute(*stmt, scope); flow != Flow::next) return flow;
  return Flow::next;
}

Renderer::Flow Renderer::execute(const Stmt& stmt, Scope& scope) {
  Entered entered(*this);
  line_ = stmt.line;
  switch (stmt.kind) {
    case Stmt::Kind::text:
      write(stmt.text);
      break;
    case Stmt::Kind::print:
      for (const ExprPtr& expr : stmt.exprs)
        write(to_text(evaluate(*expr, scope), context_.budget));
      break;
    case Stmt::Kind::if_:
      return execute_if(stmt, scope);
    case Stmt::Kind::for_:
      return execute_for(stmt, scope);
    case Stmt::Kind::set:
      assign(*stmt.target, evaluate(*stmt.exprs[0], scope), scope);
      break;
    case Stmt::Kind::set_block: {
      const Value body = text(captured_text(stmt.bodies[0], &scope));
      assign(*stmt.target, stmt.exprs[0] ? evaluate_filter(*stmt.exprs[0], scope, &body) : body,
             scope);
      break;
    }
    case Stmt::Kind::macro:
      scope.set(stmt.macro->name, macro_value(*stmt.macro, scope));
      break;
    case Stmt::Kind::call:
      execute_call(stmt, scope);
      break;
    case Stmt::Kind::filter_block: {
      const Value body = text(captured_text(stmt.bodies[0], &scope));
      const Value filtered = evaluate_filter(*stmt.exprs[0], scope, &body);
      if (!filtered.is(Kind::text))
        fault("the filter of a block should give a str, not " + type_name(filtered));
      write(filtered.text());
      break;
    }
    case Stmt::Kind::with:
      execute_with(stmt, scope);
      break;
    case Stmt::Kind::generation:
      execute_generation(stmt, scope);
      break;
    case Stmt::Kind::break_:
      return Flow::break_;
    case Stmt::Kind::continue_:
      return Flow::continue_;
  }
  return Flow::next;
}

Renderer::Flow Renderer::execute_if(const Stmt& stmt, Scope& scope) {
  for (size_t i = 0; i < stmt.exprs.size(); ++i)
    if (truth(evaluate(*stmt.exprs[i], scope))) return execute(stmt.bodies[i], scope);
  if (stmt.bodies.size() > stmt.exprs.size()) return execute(stmt.bodies.back(), scope);
  return Flow::next;
}

Renderer::Flow Renderer::execute_for(const Stmt& stmt, Scope& scope) {
  const Values items = elements(evaluate(*stmt.exprs[0], scope), context_.budget);
  const Expr* condition = stmt.exprs[1].get();
  const auto loop = std::make_shared<LoopState>();
  size_t next = 0;
  loop->pull = [&]() -> std::optional<Value> {
    while (next < items.size()) {
      const Value& item = items[next++];
      const bool wanted = condition == nullptr || in_scope(&scope, [&](Scope& inner) {
                            assign(*stmt.target, item, inner);
                            return truth(evaluate(*condition, inner));
                          });
      if (wanted) return item;
    }
    return std::nullopt;
  };
  if (condition == nullptr) loop->length = int64_t(items.size());
  struct Ended {  // the loop's value may outlive the loop, but not what it pulls from
    LoopState& loop;
    ~Ended() {
      loop.pull = nullptr;
      loop.ahead.clear();
      loop.changed.reset();
    }
  } ended{*loop};
  const Value loop_value(Kind::loop, loop);
  bool went_through = false;
  while (loop->peek() != nullptr) {
    context_.budget.spend();
    loop->before = std::move(loop->current);
    loop->current = std::move(loop->ahead.front());
    loop->ahead.pop_front();
    ++loop->index0;
    const std::optional<size_t> watched =
        out_ == &root_text_ ? watched_index(loop->current) : std::nullopt;
    const size_t begin = root_text_.size();
    const Flow flow = in_scope(&scope, [&](Scope& inner) {
      assign(*stmt.target, loop->current, inner);
      inner.set("loop", loop_value);
      return execute(stmt.bodies[0], inner);
    });
    if (watched && root_text_.size() > begin)
      watched_spans_.push_back({*watched, {begin, root_text_.size()}});
    if (flow == Flow::break_) break;
    went_through = went_through || flow == Flow::next;
  }
  // As in Jinja2, `else` is for loops no turn of which came to its end, not for empty ones alone.
  if (!went_through && stmt.bodies.size() > 1)
    return in_scope(&scope, [&](Scope& inner) { return execute(stmt.bodies[1], inner); });
  return Flow::next;
}

std::optional<size_t> Renderer::watched_index(const Value& item) const {
  if (watched_ == nullptr || !item.is(Kind::dict)) return std::nullopt;
  for (size_t i = 0; i < watched_->size(); ++i)
    if (item.same_object((*watched_)[i])) return i;
  return std::nullopt;
}

void Renderer::execute_generation(const Stmt& stmt, Scope& scope) {
  if (out_ != &root_text_)
    fault("a {% generation %} block in a macro or a block that captures text has no known place");
  const size_t begin = root_text_.size();
  in_scope(&scope, [&](Scope& inner) { return execute(stmt.bodies[0], inner); });
  generation_.push_back({begin, root_text_.size()});
}

void Renderer::execute_call(const Stmt& stmt, Scope& scope) {
  const Value caller = macro_value(*stmt.macro, scope);
  write(to_text(evaluate_call(*stmt.exprs[0], scope, &caller), context_.budget));
}

void Renderer::execute_with(const Stmt& stmt, Scope& scope) {
  Values values;
  for (const ExprPtr& expr : stmt.exprs) values.push_back(evaluate(*expr, scope));
  in_scope(&scope, [&](Scope& inner) {
    for (size_t i = 0; i < values.size(); ++i) assign(*stmt.targets[i], values[i], inner);
    return execute(stmt.bodies[0], inner);
  });
}

void Renderer::assign(const Expr& target, const Value& value, Scope& scope) {
  if (target.kind == Expr::Kind::name) return scope.set(target.name, value);
  if (target.kind == Expr::Kind::tuple) return assign_tuple(target, value, scope);
  const Value holder = lookup(*target.parts[0], scope);
  if (!holder.is(Kind::space))
    fault(str_cat("{% set ", target.parts[0]->name, ".", target.name,
                  " %}: ", target.parts[0]->name, " is no namespace"));
  if (target.name.starts_with('_'))
    fault("a namespace takes no names that begin with '_': " + target.name);
  auto& items = holder.get<Namespace>().items;
  const auto found = std::ranges::find(items, target.name, &std::pair<std::string, Value>::first);
  if (found != items.end())
    found->second = value;
  else
    items.emplace_back(target.name, value);
}

void Renderer::assign_tuple(const Expr& target, const Value& value, Scope& scope) {
  Entered entered(*this);
  const Values values = elements(value, context_.budget);
  if (values.size() != target.parts.size())
    fault(str_cat(values.size(), " values cannot be assigned to ", target.parts.size(), " names"));
  for (size_t i = 0; i < values.size(); ++i) assign(*target.parts[i], values[i], scope);
}

Value Renderer::macro_value(const Macro& macro, Scope& scope) {
  for (Scope* outer = &scope; outer != nullptr; outer = outer->parent()) outer->captured = true;
  return Value(Kind::callable, std::make_shared<Callable>(Callable{.what = Callable::What::macro,
                                                                   .name = macro.name,
                                                                   .self = {},
                                                                   .macro = &macro,
                                                                   .scope = &scope}));
}

Value Renderer::call_macro(const Callable& callable, Call call) {
  Entered entered(*this);
  const Macro& macro = *callable.macro;
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::ranges::find(call.named, name, &std::pair<std::string, Value>::first);
    if (found == call.named.end()) return std::nullopt;
    Value value = std::move(found->second);
    call.named.erase(found);
    return value;
  };
  // Lives on with the scope of the body if that defines macros.
  auto kept = std::make_unique<Scope>(callable.scope);
  Scope& parameters = *kept;
  const size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    std::optional<Value> value;
    if (i < call.positional.size())
      value = call.positional[i];
    else
      value = take(name);
    if (!value)
      value = i >= first_default ? evaluate(*macro.defaults[i - first_default], parameters)
                                 : undefined("parameter '" + name + "' was not provided");
    parameters.set(name, std::move(*value));
  }
  if (macro.uses_caller && std::ranges::find(macro.parameters, "caller") == macro.parameters.end())
    parameters.set("caller", take("caller").value_or(undefined("No caller defined")));
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : call.named) rest.emplace_back(text(name), std::move(value));
    parameters.set("kwargs", dict(std::move(rest), context_.budget));
  } else if (!call.named.empty()) {
    fault(str_cat("the macro ", macro.name, " has no parameter called ", call.named[0].first));
  }
  const size_t used = std::min(call.positional.size(), macro.parameters.size());
  Values more(call.positional.begin() + int64_t(used), call.positional.end());
  if (macro.uses_varargs)
    parameters.set("varargs", tuple(std::move(more)));
  else if (!more.empty())
    fault(str_cat("the macro ", macro.name, " takes ", macro.parameters.size(),
                  " arguments at most, not ", call.positional.size()));
  std::string body = captured_text(macro.body, kept.get());
  if (kept->captured) kept_.push_back(std::move(kept));
  return text(std::move(body));
}

}  // namespace phx::jinja
