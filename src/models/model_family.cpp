#include "phalanx/models/model_family.h"

#include "phalanx/models/gpt/gpt_model.h"

namespace phx {

ModelFamily decoder_of(std::string name, std::string help, LayerParts parts) {
  return decoder_of(
      std::move(name), std::move(help),
      [parts = std::move(parts)](const LayerContext& layer, const OwnOptions&) {
        return parts(layer);
      },
      OwnOptions());
}

ModelFamily decoder_of(std::string name, std::string help, OptionLayerParts parts,
                       OwnOptions options) {
  return {.name = std::move(name),
          .help = std::move(help),
          .make =
              [parts = std::move(parts)](const TransformerConfig& config,
                                         const ModelOptions& model_options) {
                return std::make_unique<GptModel>(
                    config, model_options,
                    [&](const LayerContext& layer) { return parts(layer, model_options.own); });
              },
          .options = std::move(options)};
}

ModelFamily default_model() {
  return decoder_of("gpt", "decoders: GPT-2, Llama, Mistral, Qwen, Gemma", decoder_layer);
}

std::vector<ModelFamily> standard_models() { return {default_model()}; }

}  // namespace phx
