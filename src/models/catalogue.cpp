#include "models/catalogue.h"

#include "base/error.h"
#include "models/gpt/gpt_model.h"

namespace phx {

const ModelFamily& Catalogue::model(const std::string& name) const {
  std::string names;
  for (const ModelFamily& family : models) {
    if (family.name == name) return family;
    names += (names.empty() ? "" : ", ") + family.name;
  }
  throw_error(
      str_cat("--model ", name, " is not in the catalogue of this program, which has: ", names));
}

ModelFamily decoder_of(std::string name, std::string help, LayerParts parts) {
  return {.name = std::move(name),
          .help = std::move(help),
          .make = [parts = std::move(parts)](const TransformerConfig& config,
                                             const ModelOptions& options) {
            return std::make_unique<GptModel>(config, options, parts);
          }};
}

ModelFamily default_model() {
  return decoder_of("gpt", "decoders: GPT-2, Llama, Mistral, Qwen, Gemma", decoder_layer);
}

Catalogue standard_catalogue() { return {.models = {default_model()}}; }

}  // namespace phx
