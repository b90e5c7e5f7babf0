// Kinds of models: entries of a catalogue (train/catalogue.h), of which --model chooses one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "phalanx/models/model.h"
#include "phalanx/transformer/layer_part.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct ModelFamily {
  std::string name;  // --model NAME
  std::string help;
  std::function<std::unique_ptr<Model>(const TransformerConfig& config,
                                       const ModelOptions& options)>
      make;
  OwnOptions options = {};  // reach `make` as ModelOptions::own

  // A part of a model; without options the whole model on one rank. `config` outlives the model.
  std::unique_ptr<Model> operator()(const TransformerConfig& config,
                                    ModelOptions model_options = {}) const {
    model_options.own = options;
    return make(config, model_options);
  }
};

// The family that a run trains.
struct ModelChoice {
  std::string model = "gpt";

  template <class Field>
  void each(Field&& field) {
    field("model", model, "model to train, by its name in the program's catalogue", Own{});
  }
};

// A decoder like the GPT family's, whose layers are made of these parts.
ModelFamily decoder_of(std::string name, std::string help, LayerParts parts);
// The same for parts that need the family's own options.
using OptionLayerParts =
    std::function<std::vector<NamedPart>(const LayerContext& layer, const OwnOptions& options)>;
ModelFamily decoder_of(std::string name, std::string help, OptionLayerParts parts,
                       OwnOptions options);

// The decoder of the GPT family: what a run trains unless --model says otherwise.
ModelFamily default_model();
std::vector<ModelFamily> standard_models();

}  // namespace phx
