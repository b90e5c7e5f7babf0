#include "phalanx/text/jinja/jinja_template.h"

#include "phalanx/text/jinja/renderer.h"
#include "phalanx/text/jinja/syntax.h"

namespace phx::jinja {
namespace {

bool has_generation(const Body& body) {
  for (const auto& stmt : body) {
    if (stmt->kind == Stmt::Kind::generation) return true;
    for (const Body& inner : stmt->bodies)
      if (has_generation(inner)) return true;
    if (stmt->macro && has_generation(stmt->macro->body)) return true;
  }
  return false;
}

}  // namespace

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    body_ = std::make_shared<const Body>(parse_template(source));
  } catch (const Error& error) {
    throw Error(str_cat(name_, ": ", error.what()));
  }
  has_generation_blocks_ = has_generation(*body_);
}

Rendered Template::render(const Value& variables, const RenderOptions& options) const {
  Renderer renderer(variables, options);
  try {
    return renderer.run(*body_);
  } catch (const Fault& error) {
    throw Error(str_cat(name_, ": line ", renderer.line(), ": ", error.what()));
  }
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

}  // namespace phx::jinja
