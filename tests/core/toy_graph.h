// Ops and a leaf in miniature, in f64, for tests of the graph.
#pragma once

#include <memory>
#include <vector>

#include "phalanx/core/accumulate.h"
#include "phalanx/core/autograd.h"
#include "support/gradients.h"

namespace phx::testing {

// y = factor * x, counting how often its closure is alive, to see when saved tensors go.
inline Tensor times(const Tensor& x, double factor, std::shared_ptr<int> alive = nullptr) {
  Tensor y = empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) y.data<double>()[i] = factor * x.data<double>()[i];
  return with_backward(y, {x}, [factor, alive](const Tensor& dy, GradOut& grad) {
    Tensor& dx = grad.out(0);
    for (int64_t i = 0; i < dy.numel(); ++i) dx.data<double>()[i] = factor * dy.data<double>()[i];
  });
}

inline Tensor plus(const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  for (int64_t i = 0; i < a.numel(); ++i)
    y.data<double>()[i] = a.data<double>()[i] + b.data<double>()[i];
  return with_backward(y, {a, b}, [](const Tensor& dy, GradOut& grad) {
    grad.pass(0, dy);
    grad.pass(1, dy);
  });
}

inline Tensor one() {
  return from_values(std::vector<double>{1.0}, {1}, DType::f64, test_device());
}

// A parameter in miniature.
struct ToyLeaf : Node {
  ToyLeaf() : Node(test_runtime()), gradient(zeros({1}, DType::f64, test_device())) {}
  bool is_leaf() const override { return true; }
  Sink leaf_sink() override { return {gradient, touched++ ? 1.f : 0.f}; }
  void leaf_done() override { ++done; }
  Tensor gradient;
  int touched = 0, done = 0;
};

inline Tensor with_deferred_weight(const Tensor& x, const Tensor& w) {
  Tensor y = empty_like(x);
  y.data<double>()[0] = x.data<double>()[0] * w.data<double>()[0];
  return with_backward(
      y, {x, w}, [x = x.detach(), w = w.detach()](const Tensor& dy, GradOut& grad) {
        grad.out(0).data<double>()[0] = dy.data<double>()[0] * w.data<double>()[0];
        grad.later(1, [x, dy](const Sink& dw) {
          const Tensor product =
              from_values(std::vector<double>{x.data<double>()[0] * dy.data<double>()[0]}, {1},
                          DType::f64, x.device());
          add_to_sink(product, dw);
        });
      });
}

}  // namespace phx::testing
