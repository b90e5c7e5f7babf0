// y = x W^T + b, serial. W is [out, in].
#pragma once

#include <optional>

#include "nn/module.h"

namespace phx {

struct LinearOptions {
  bool bias = true;
  Init init = Init::normal(0.02);
  std::vector<RowPiece> rows;  // where output rows lie locally; empty: in order
};

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, const LinearOptions& options);

  Tensor forward(const Tensor& x);  // [.., in] -> [.., out]

  // Without the bias, for callers that add it together with dropout and the residual.
  Tensor multiply(const Tensor& x);
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
};

}  // namespace phx
