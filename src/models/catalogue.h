// The models that a program can train. A program of its own adds an entry and has every command:
//
//   int main(int argc, char** argv) {
//     phx::Catalogue catalogue = phx::standard_catalogue();
//     catalogue.models.push_back(phx::decoder_of("mine", "my own layers", my_layer));
//     return phx::main(argc, argv, catalogue);
//   }
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

  // A part, or without options all of it on one rank. `config` outlives the model.
  std::unique_ptr<Model> operator()(const TransformerConfig& config,
                                    const ModelOptions& options = {}) const {
    return make(config, options);
  }
};

struct Catalogue {
  std::vector<ModelFamily> models;

  const ModelFamily* find(const std::string& name) const;  // null: there is none
  // Throws and names the models that there are.
  const ModelFamily& model(const std::string& name) const;
  std::string names() const;  // "gpt, mine"
};

// Which of them a run trains.
struct ModelChoice {
  std::string model = "gpt";

  template <class Field>
  void each(Field&& field) {
    field("model", model, "which model of the program's catalogue is trained");
  }
};

// A decoder as in the GPT family, whose layers are made of these parts.
ModelFamily decoder_of(std::string name, std::string help, LayerParts parts);

Catalogue standard_catalogue();
// The decoder of the GPT family: what a run trains unless --model says otherwise.
ModelFamily default_model();

}  // namespace phx
