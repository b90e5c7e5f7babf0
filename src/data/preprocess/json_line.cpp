#include "phalanx/data/preprocess/json_line.h"

#include <simdjson.h>

#include "phalanx/base/error.h"
#include "phalanx/data/preprocess/text_input.h"

namespace phx {
namespace {

static_assert(LineBlock::kPadding >= simdjson::SIMDJSON_PADDING);

const char* name_of(simdjson::dom::element_type type) {
  switch (type) {
    case simdjson::dom::element_type::ARRAY:
      return "a list";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::BOOL:
      return "true or false";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    case simdjson::dom::element_type::STRING:
      return "a string";
    default:
      return "a number";
  }
}

}  // namespace

struct JsonLineParser::Parser {
  simdjson::dom::parser parser;
};

JsonLineParser::JsonLineParser() : parser_(std::make_unique<Parser>()) {}
JsonLineParser::~JsonLineParser() = default;

std::span<const std::string_view> JsonLineParser::parse(std::string_view line,
                                                        std::span<const std::string> keys) {
  simdjson::dom::element element;
  const auto error =
      parser_->parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(element);
  PHX_CHECK(!error, "this is no JSON: ", simdjson::error_message(error));
  simdjson::dom::object object;
  PHX_CHECK(!element.get_object().get(object), "a line should be a JSON object, but this is ",
            name_of(element.type()));
  texts_.assign(keys.size(), {});
  std::vector<bool> found(keys.size());
  for (const auto& field : object) {  // of a key that comes twice the last counts
    for (size_t i = 0; i < keys.size(); ++i) {
      if (field.key != keys[i]) continue;
      PHX_CHECK(!field.value.get_string().get(texts_[i]), "\"", keys[i],
                "\" should be a string, but it is ", name_of(field.value.type()));
      found[i] = true;
    }
  }
  for (size_t i = 0; i < keys.size(); ++i)
    PHX_CHECK(found[i], "there is no \"", keys[i],
              "\"\n  hint: --json-keys names the keys to take");
  return texts_;
}

}  // namespace phx
