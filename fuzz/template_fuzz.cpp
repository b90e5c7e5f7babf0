// Any bytes as a template, rendered with a small chat: an Error is fine, anything else is not.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/jinja_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace phx;
  static const jinja::Value variables = jinja::parse_json(
      R"({"messages": [{"role": "system", "content": "Be brief."},
                       {"role": "user", "content": "Gr\u00fc\u00dfe \ud83d\ude42 'q' \"r\""},
                       {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function":
                         {"name": "f", "arguments": {"x": 0.5, "y": [1, true, null]}}}]}],
          "tools": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
          "n": 3, "s": "a b c"})");
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const jinja::Template made(source, "fuzzed");
    made.render(variables, {.steps = 20'000});
  } catch (const Error&) {
  }
  return 0;
}
