// A Jinja2 template, read once and rendered many times, byte for byte as the Jinja2 library does it
// in the set-up of transformers' apply_chat_template: sandboxed, trim_blocks, lstrip_blocks, loop
// controls, {% generation %}. What this interpreter lacks is refused by its name.
//
//   const jinja::Template hello("Hello {{ name | upper }}!", "hello.jinja");
//   hello.render(jinja::parse_json(R"({"name": "you"})")).text;  // "Hello YOU!"
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/text/jinja/value.h"

namespace phx::jinja {

struct Stmt;

struct TextSpan {  // bytes [begin, end) of a rendered text
  size_t begin, end;
};

// What one turn of a loop wrote, whose item was that of RenderOptions::watched at this index: the
// very same object, not an equal one.
struct WatchedSpan {
  size_t index;
  TextSpan span;
};

struct Rendered {
  std::string text;
  std::vector<TextSpan> generation;  // what {% generation %} blocks wrote, in order
  std::vector<WatchedSpan> watched;  // turns that wrote something, outside of macros
};

struct RenderOptions {
  // Each expression and each 32 bytes of text take one; a chat of a megabyte takes about a million.
  int64_t steps = 10'000'000;
  std::tm now = {};  // what strftime_now tells
  const Values* watched = nullptr;
};

class Template {
 public:
  // An Error names `name`, the line and what is wrong or not supported.
  Template(std::string_view source, std::string name);

  // `variables` is a dict of the names that the template sees. Safe from several threads at once.
  Rendered render(const Value& variables, const RenderOptions& options = {}) const;

  bool has_generation_blocks() const { return has_generation_blocks_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::shared_ptr<const std::vector<std::unique_ptr<Stmt>>> body_;
  bool has_generation_blocks_ = false;
};

// The local time, for RenderOptions::now.
std::tm local_time();

}  // namespace phx::jinja
