#include "nn/linear.h"

#include "ops/linear.h"

namespace phx {

namespace {

ParameterSpec spec(const Shape& shape, Init init, const std::vector<RowPiece>& rows) {
  ParameterSpec result = whole(shape, init);
  if (!rows.empty()) result.pieces = rows;
  return result;
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, const LinearOptions& options)
    : weight_(spec({out, in}, options.init, options.rows)) {
  add_parameter("weight", weight_);
  if (options.bias) {
    bias_.emplace(spec({out}, Init::constant(0), options.rows));
    add_parameter("bias", *bias_);
  }
}

Tensor Linear::forward(const Tensor& x) {  // [.., in] -> [.., out]
  if (!bias_) return multiply(x);
  return linear(x, weight_.acquire(), bias_->acquire());
}

Tensor Linear::multiply(const Tensor& x) { return linear(x, weight_.acquire(), Tensor()); }

}  // namespace phx
