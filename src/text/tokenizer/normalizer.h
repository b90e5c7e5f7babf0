// The "normalizer" of a tokenizer.json: text to text, before words are cut.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace phx {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string_view text) const = 0;  // valid UTF-8, in and out
};

// Null for JSON's null. A kind that is not known is an error that names it.
std::unique_ptr<const Normalizer> make_normalizer(const nlohmann::json& json);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// The normal forms with the tables of the Hugging Face library.
std::string normal_form(NormalForm form, std::string_view text);

}  // namespace phx
