// Rows of a table by id. The table may be padded with zero rows that no id reaches.
#pragma once

#include "nn/module.h"

namespace phx {

class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t width, Init init, int64_t padded_rows = 0);

  Tensor forward(const Tensor& ids, double scale = 1.0);  // [s, b] -> [s, b, width]
  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

}  // namespace phx
