// A template as a tree. Expressions and statements are one struct each, with the parts that their
// kind has: the renderer's switch over the kinds is where they get their meaning.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/text/jinja/value.h"

namespace phx::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;  // *list, **dict
};

struct Expr {
  enum class Kind {
    constant,
    name,         // name
    list,         // parts
    tuple,        // parts
    dict,         // parts: key, value, key, value
    attribute,    // parts[0].name
    item,         // parts[0][parts[1]]
    slice,        // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    call,         // parts[0](arguments)
    filter,       // parts[0] | name(arguments); null in a filter block
    test,         // parts[0] is name(arguments)
    negate,       // -parts[0]
    plus,         // +parts[0]
    not_,         // not parts[0]
    and_,         // parts[0] and parts[1]
    or_,          // parts[0] or parts[1]
    binary,       // parts[0] name parts[1]: + - * / // % **
    compare,      // parts[0] names[0] parts[1] names[1] parts[2] ..
    concat,       // parts[0] ~ parts[1] ~ ..
    conditional,  // parts[1] if parts[0] else parts[2], which may be null
  };
  Kind kind;
  int line = 0;
  int height = 1;  // of the tree below: bounds the stack that rendering needs
  std::string name = {};
  Value constant = {};
  std::vector<ExprPtr> parts = {};
  std::vector<std::string> names = {};
  Arguments arguments = {};
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  // Names that the body mentions: only then does a call hand them over.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Stmt {
  enum class Kind {
    text,          // text
    print,         // exprs
    if_,           // exprs[i] -> bodies[i]; one body more for else
    for_,          // target in exprs[0] if exprs[1] (or null): bodies[0], else bodies[1]
    set,           // target = exprs[0]
    set_block,     // target = bodies[0] | exprs[0] (or null)
    macro,         // macro
    call,          // {% call(..) exprs[0] %}: macro is the body
    filter_block,  // bodies[0] | exprs[0]
    with,          // targets[i] = exprs[i]: bodies[0]
    generation,    // bodies[0]: what an assistant writes
    break_,
    continue_,
  };
  Kind kind;
  int line = 0;
  std::string text = {};
  ExprPtr target = {};
  std::vector<ExprPtr> targets = {};
  std::vector<ExprPtr> exprs = {};
  std::vector<Body> bodies = {};
  std::unique_ptr<Macro> macro = {};
};

// Faults with the line for what is wrong, and for what this interpreter does not have.
Body parse_template(std::string_view source);

// Names that the renderer has; a template that uses others is refused when it is read.
bool has_filter(std::string_view name);
bool has_test(std::string_view name);

}  // namespace phx::jinja
