#include "phalanx/train/num_parameters.h"

namespace phx {

int64_t num_parameters(const ModelFamily& family, const TransformerConfig& config) {
  const std::unique_ptr<Model> whole = family(config);
  int64_t elements = 0;
  whole->for_each_parameter([&](const std::string&, Parameter& parameter) {
    elements += parameter.spec().global_shape.numel();
  });
  return elements;
}

}  // namespace phx
