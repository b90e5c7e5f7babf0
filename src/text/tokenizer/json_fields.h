// The fields of one component of a tokenizer.json; what is missing or of another kind is an error
// that names the component.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace phx {

class JsonFields {
 public:
  // `json` must outlive this; `part` is "normalizer", "decoder"...
  JsonFields(const nlohmann::json& json, std::string part);

  std::string type() const;
  const nlohmann::json& at(const char* name) const;  // an error when there is none
  bool is_null(const char* name) const;              // null, or not there
  std::string text(const char* name) const;
  std::string text(const char* name, const std::string& otherwise) const;
  bool flag(const char* name, bool otherwise) const;
  int64_t number(const char* name, int64_t otherwise) const;
  const nlohmann::json& array(const char* name) const;
  const nlohmann::json& object(const char* name) const;

  // "the normalizer Foo is not supported".
  [[noreturn]] void refuse_type() const;
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  const nlohmann::json& json_;
  std::string part_;
};

}  // namespace phx
