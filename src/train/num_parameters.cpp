#include "train/num_parameters.h"

#include "models/gpt/gpt_model.h"

namespace phx {

int64_t num_parameters(const TransformerConfig& model) {
  GptModel whole(model);
  int64_t elements = 0;
  whole.for_each_parameter([&](const std::string&, Parameter& parameter) {
    elements += parameter.spec().global_shape.numel();
  });
  return elements;
}

}  // namespace phx
