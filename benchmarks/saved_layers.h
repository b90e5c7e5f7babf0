// Something to save of any size.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "phalanx/nn/module.h"
#include "phalanx/nn/parameter.h"

namespace phx {

// Layers of a model with 1024 hidden units, as bytes allow.
class Layers : public Module {
 public:
  explicit Layers(int64_t elements) {
    const int64_t per_layer = 4 * 1024 * 1024 + 3 * 1024 * 2816;
    for (int64_t i = 0; i < std::max<int64_t>(elements / per_layer, 1); ++i) {
      const std::string layer = "decoder.layers." + std::to_string(i);
      add(layer + ".qkv", {3072, 1024});
      add(layer + ".proj", {1024, 1024});
      add(layer + ".fc1", {5632, 1024});
      add(layer + ".fc2", {1024, 2816});
      add(layer + ".norm", {1024});
    }
  }

 private:
  void add(const std::string& name, const Shape& shape) {
    parameters_.push_back(std::make_unique<Parameter>(whole(shape, Init::constant(1))));
    add_parameter(name.c_str(), *parameters_.back());
  }
  std::vector<std::unique_ptr<Parameter>> parameters_;
};

}  // namespace phx
