// Rows of a table by id, the same on every rank.
#pragma once

#include "phalanx/nn/module.h"

namespace phx {

class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t width, Init init, const ParameterAxes& axes = {});

  Tensor forward(const Tensor& ids, double scale = 1.0);  // [s, b] -> [s, b, width]
  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

}  // namespace phx
