#include "phalanx/core/segment.h"

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/core/accumulate.h"

namespace phx {

namespace {

class InputLeaf : public Node {
 public:
  InputLeaf(Runtime& runtime, const Shape& shape, DType dtype)
      : Node(runtime), shape_(shape), dtype_(dtype) {}
  bool is_leaf() const override { return true; }
  Sink leaf_sink() override {
    if (gradient.defined()) {
      make_sole_owner(gradient);
      return {gradient, 1.f};
    }
    gradient = empty(shape_, dtype_, runtime().device());
    return {gradient, 0.f};
  }

  bool leaf_take(const Tensor& whole) override {
    if (gradient.defined()) return false;
    gradient = whole;
    return true;
  }

  Tensor gradient;

 private:
  Shape shape_;
  DType dtype_;
};

}  // namespace

Segment::Segment(std::span<const Tensor> inputs, const Forward& forward) {
  for (const Tensor& input : inputs) {
    Tensor detached = input.detach();
    if (input.defined() && is_float(input.dtype()))
      detached.set_node(std::make_shared<InputLeaf>(input.runtime(), input.shape(), input.dtype()),
                        0);
    inputs_.push_back(detached);
  }
  for (const Tensor& output : forward(inputs_)) {
    ends_.push_back(graph_end(output));
    outputs_.push_back(output.detach());
  }
}

std::vector<Tensor> Segment::backward(std::span<const Tensor> douts,
                                      const BackwardOptions& options) {
  outputs_.clear();
  const std::vector<GraphEnd> ends = std::exchange(ends_, {});
  phx::backward(ends, douts, options);
  std::vector<Tensor> gradients;
  for (const Tensor& input : inputs_) {
    auto* leaf = static_cast<InputLeaf*>(input.node().get());
    gradients.push_back(leaf != nullptr ? std::exchange(leaf->gradient, {}) : Tensor());
  }
  return gradients;
}

std::vector<Tensor> recompute(std::span<const Tensor> inputs, const Segment::Forward& forward) {
  Runtime& runtime = inputs[0].runtime();
  std::vector<Tensor> detached;
  for (const Tensor& input : inputs) detached.push_back(input.detach());
  if (!runtime.grad_enabled()) return forward(detached);

  std::vector<Tensor> outputs;
  {
    GradMode off(runtime, false);
    outputs = forward(detached);
  }
  auto backward = [detached, forward](std::span<const Tensor> dys, GradOut& grad) {
    GradMode on(detached[0].runtime(), true);
    Segment segment(detached, forward);
    const std::vector<Tensor> gradients = segment.backward(dys, grad.options());
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined() && grad.wants(int(i))) grad.pass(int(i), gradients[i]);
  };
  return with_backward_many(outputs, inputs, backward, /*always=*/true);
}

namespace {

// f(first row, number of rows) of each piece.
template <class F>
void for_pieces(int64_t rows, int64_t pieces, F&& f) {
  const int64_t step = ceil_div(rows, pieces);
  for (int64_t first = 0; first < rows; first += step) f(first, std::min(step, rows - first));
}

using OfRows = std::function<Tensor(const Tensor& rows)>;

Tensor with_rows_backward(const Tensor& y, const Tensor& x, int64_t pieces, const OfRows& forward) {
  auto backward = [x = x.detach(), pieces, forward](std::span<const Tensor> dys, GradOut& grad) {
    GradMode on(x.runtime(), true);
    const Tensor dx = grad.wants(0) ? empty_like(x) : Tensor();
    for_pieces(x.dim(0), pieces, [&](int64_t first, int64_t count) {
      const Tensor in = x.rows(first, count), dy = dys[0].rows(first, count);
      Segment segment(std::span(&in, 1), [&](std::span<const Tensor> rows) {
        return std::vector<Tensor>{forward(rows[0])};
      });
      // Nothing is deferred: what waits for later would keep all pieces in memory.
      const std::vector<Tensor> of_piece = segment.backward(std::span(&dy, 1));
      if (!dx.defined()) return;
      Tensor rows = dx.rows(first, count);
      copy(of_piece[0], rows);
    });
    if (dx.defined()) grad.pass(0, dx);
  };
  return with_backward_many({y}, std::span(&x, 1), backward, /*always=*/true)[0];
}

}  // namespace

Tensor recompute_rows(const Tensor& x, int64_t pieces, const OfRows& forward) {
  const Tensor detached = x.detach();
  Tensor y;
  {
    GradMode off(x.runtime(), false);
    for_pieces(x.dim(0), pieces, [&](int64_t first, int64_t count) {
      const Tensor piece = forward(detached.rows(first, count));
      if (!y.defined()) {
        Shape shape = piece.shape();
        shape.set(0, x.dim(0));
        y = empty(shape, piece.dtype(), piece.device());
      }
      Tensor rows = y.rows(first, count);
      copy(piece, rows);
    });
  }
  return x.runtime().grad_enabled() ? with_rows_backward(y, x, pieces, forward) : y;
}

Tensor recompute_rows_later(const Tensor& x, const Shape& y, int64_t pieces,
                            const OfRows& forward) {
  return with_rows_backward(empty(y, x.dtype(), x.device()), x, pieces, forward);
}

}  // namespace phx
