#include "phalanx/text/tokenizer/json_fields.h"

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"

namespace phx {

using Json = nlohmann::json;

JsonFields::JsonFields(const Json& json, std::string part) : json_(json), part_(std::move(part)) {
  PHX_CHECK(json_.is_object(), "the ", part_, " of a tokenizer should be an object, but is ",
            json_.type_name());
}

std::string JsonFields::type() const { return text("type"); }

const Json& JsonFields::at(const char* name) const {
  const auto found = json_.find(name);
  PHX_CHECK(found != json_.end(), "the ", part_, " of a tokenizer has no field ", name);
  return *found;
}

bool JsonFields::is_null(const char* name) const {
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null();
}

std::string JsonFields::text(const char* name) const {
  const Json& value = at(name);
  PHX_CHECK(value.is_string(), "the field ", name, " of the ", part_, " should be a text, but is ",
            value.type_name());
  return value.get<std::string>();
}

std::string JsonFields::text(const char* name, const std::string& otherwise) const {
  return is_null(name) ? otherwise : text(name);
}

bool JsonFields::flag(const char* name, bool otherwise) const {
  if (is_null(name)) return otherwise;
  PHX_CHECK(at(name).is_boolean(), "the field ", name, " of the ", part_,
            " should be true or false, but is ", at(name).type_name());
  return at(name).get<bool>();
}

int64_t JsonFields::number(const char* name, int64_t otherwise) const {
  if (is_null(name)) return otherwise;
  PHX_CHECK(at(name).is_number_integer(), "the field ", name, " of the ", part_,
            " should be an integer, but is ", at(name).type_name());
  return at(name).get<int64_t>();
}

const Json& JsonFields::array(const char* name) const {
  PHX_CHECK(at(name).is_array(), "the field ", name, " of the ", part_,
            " should be a list, but is ", at(name).type_name());
  return at(name);
}

const Json& JsonFields::object(const char* name) const {
  PHX_CHECK(at(name).is_object(), "the field ", name, " of the ", part_,
            " should be an object, but is ", at(name).type_name());
  return at(name);
}

void JsonFields::refuse_type() const {
  throw Error(str_cat("the ", part_, " ", type(), " is not supported"));
}

void JsonFields::refuse(const std::string& what) const {
  throw Error(str_cat("the ", part_, " has ", what, ", which is not supported"));
}

}  // namespace phx
