// Walks a template's tree and writes its text. Scopes are as in Jinja2: loops, macros, blocks that
// capture text and {% with %} have one of their own, and {% if %} has not.
#pragma once

#include <optional>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/jinja_template.h"
#include "phalanx/text/jinja/syntax.h"

namespace phx::jinja {

class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  void set(const std::string& name, Value value);
  const Value* find(std::string_view name) const;  // here or outside
  Scope* parent() const { return parent_; }

  bool captured = false;  // a macro that was defined here sees it later on

 private:
  Scope* parent_;
  std::vector<std::pair<std::string, Value>> names_;
};

class Renderer {
 public:
  Renderer(const Value& variables, const RenderOptions& options);
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  Rendered run(const Body& body);
  int line() const { return line_; }  // where it is, for the text of a fault

 private:
  enum class Flow { next, break_, continue_ };
  // One level deeper, for as long as it lives: faults before the stack runs out.
  class Entered {
   public:
    explicit Entered(Renderer& renderer);
    ~Entered() { --renderer_.depth_; }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Renderer& renderer_;
  };

  // A scope of its own for `body`; it lives on if a macro needs it.
  template <class Work>
  auto in_scope(Scope* parent, Work&& work);

  Flow execute(const Body& body, Scope& scope);
  Flow execute(const Stmt& stmt, Scope& scope);
  Flow execute_if(const Stmt& stmt, Scope& scope);
  Flow execute_for(const Stmt& stmt, Scope& scope);
  void execute_generation(const Stmt& stmt, Scope& scope);
  void execute_call(const Stmt& stmt, Scope& scope);
  void execute_with(const Stmt& stmt, Scope& scope);
  std::string captured_text(const Body& body, Scope* parent);
  void write(std::string_view text);
  void assign(const Expr& target, const Value& value, Scope& scope);
  void assign_tuple(const Expr& target, const Value& value, Scope& scope);
  Value macro_value(const Macro& macro, Scope& scope);
  std::optional<size_t> watched_index(const Value& item) const;

  Value evaluate(const Expr& expr, Scope& scope);
  Value lookup(const Expr& expr, Scope& scope);
  Value evaluate_display(const Expr& expr, Scope& scope);
  Value evaluate_slice(const Expr& expr, Scope& scope);
  Value evaluate_call(const Expr& expr, Scope& scope, const Value* caller);
  Value evaluate_filter(const Expr& expr, Scope& scope, const Value* input);
  Value evaluate_binary(const Expr& expr, Scope& scope);
  Value evaluate_logic(const Expr& expr, Scope& scope);
  bool evaluate_comparison(const Expr& expr, Scope& scope);
  Value evaluate_concat(const Expr& expr, Scope& scope);
  Call evaluate_arguments(const Arguments& arguments, Scope& scope);
  Value call_macro(const Callable& callable, Call call);

  Context context_;
  Scope globals_;
  std::string* out_ = nullptr;
  std::string root_text_;
  std::vector<TextSpan> generation_;
  const Values* watched_;
  std::vector<WatchedSpan> watched_spans_;
  std::vector<std::unique_ptr<Scope>> kept_;
  int depth_ = 0;
  int line_ = 1;
};

}  // namespace phx::jinja
