// The "decoder" of a tokenizer.json: tokens back to text, in stages that each map a list of texts
// to a list of texts.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace phx {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

// Null for JSON's null: tokens are joined with spaces then. A kind that is not known is an error
// that names it.
std::unique_ptr<const TokenDecoder> make_decoder(const nlohmann::json& json);

}  // namespace phx
