#include "phalanx/models/catalogue.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/models/gpt/gpt_model.h"

namespace phx {

const ModelFamily* Catalogue::find(const std::string& name) const {
  const auto found = std::ranges::find(models, name, &ModelFamily::name);
  return found == models.end() ? nullptr : &*found;
}

std::string Catalogue::names() const {
  std::string names;
  for (const ModelFamily& family : models) names += (names.empty() ? "" : ", ") + family.name;
  return names;
}

const ModelFamily& Catalogue::model(const std::string& name) const {
  const ModelFamily* family = find(name);
  PHX_CHECK(family != nullptr, "--model ", name,
            " is not in the catalogue of this program, which has: ", names());
  return *family;
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
