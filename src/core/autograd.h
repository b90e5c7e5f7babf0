// The backward of a graph that hangs on its outputs. There is no tape: an output holds the node
// that made it, a node holds its inputs' nodes and, in its closure, what its backward needs.
// Dropping the outputs drops the graph, and backward() frees each closure as soon as it has run.
//
//   return with_backward(y, {x, w}, [x, w, rstd](const Tensor& dy, GradOut& grad) {
//     kernels::rms_norm_backward(x, w, rstd, dy, grad.out(0), grad.add(1));
//   });
//
// Nodes run in the reverse order of their making, so additions have one fixed order.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "phalanx/core/tensor.h"

namespace phx {

// Where a gradient goes: tensor = beta * tensor + gradient. beta is 0 or 1; with 0 the old contents
// are not read. The tensor may have a wider dtype than the arithmetic (main gradients).
struct Sink {
  Tensor tensor;
  float beta = 0.f;
};

class Node;

// Handed to a backward function: where to put the gradient of input i.
class GradOut {
 public:
  // Whether anybody wants it. If not, out/add give scratch; an op with costly work asks first.
  bool wants(int i) const;
  // To be overwritten; has the shape and dtype of input i. At most one of out, add, pass or later
  // is called for an input.
  Tensor& out(int i);
  // To be added to with the given beta; for inputs with several uses and for parameters.
  Sink add(int i);
  // The gradient is this tensor itself: nothing is copied.
  void pass(int i, const Tensor& gradient);
  // Work that only produces a weight's gradient: runs now, or when the schedule says
  // (BackwardOptions). It does not read the weight, which may be gone by then.
  void later(int i, std::function<void(const Sink&)> work);
  // The gradient of input i is in its sink since the forward (sink_in_forward).
  void formed(int i);
  // How the running backward treats deferred work, for backward functions that walk a graph inside.
  const struct BackwardOptions& options() const;

 private:
  friend class BackwardRun;
  GradOut(class BackwardRun& run, Node& node) : run_(run), node_(node) {}
  BackwardRun& run_;
  Node& node_;
  std::vector<Tensor> overwritten_;  // per input
};

// dys[i] is undefined where output i got no gradient.
using BackwardFn = std::function<void(std::span<const Tensor> dys, GradOut& grad)>;

class Node {
 public:
  struct Input {
    std::shared_ptr<Node> node;  // null: needs no gradient
    int output = 0;
    Shape shape;
    DType dtype = DType::f32;
  };

  explicit Node(Runtime& runtime);
  virtual ~Node() = default;

  Runtime& runtime() const { return runtime_; }
  uint64_t order() const { return order_; }

  // A leaf ends the graph: a parameter, or the detached input of a segment.
  virtual bool is_leaf() const { return false; }
  // Leaves only. Where a gradient is to be added, and the word that it was.
  virtual Sink leaf_sink() { return {}; }
  virtual bool leaf_take(const Tensor&) { return false; }  // true: kept this very tensor, uncopied
  virtual void leaf_done() {}
  // Leaves only: around the backward of a node that uses this leaf (sharded weights are gathered
  // here).
  virtual void leaf_acquire() {}
  virtual void leaf_release() {}

 private:
  friend class BackwardRun;
  friend class GradOut;
  friend std::vector<Tensor> with_backward_many(std::vector<Tensor>, std::span<const Tensor>,
                                                BackwardFn, bool);
  Runtime& runtime_;
  uint64_t order_;
  std::vector<Input> inputs_;
  std::vector<Tensor> gradients_;  // arrived so far, per output
  BackwardFn backward_;
  bool consumed_ = false;
};

// Returns y, made by a node with this backward, if grad mode is on and an input needs a gradient.
Tensor with_backward(const Tensor& y, std::initializer_list<Tensor> inputs,
                     std::function<void(const Tensor& dy, GradOut& grad)> backward);
// The same with several outputs. `always` records even if no input needs a gradient (a recomputed
// segment reaches its parameters only inside).
std::vector<Tensor> with_backward_many(std::vector<Tensor> ys, std::span<const Tensor> inputs,
                                       BackwardFn backward, bool always = false);

// The sink of a leaf for an op that forms its gradient in the forward, while what it is made of is
// there. The op adds to it before it returns, names the leaf among its inputs, and says
// GradOut::formed in its backward, with which the use counts as done: like every other one.
// Undefined if the leaf needs no gradient.
Sink sink_in_forward(const Tensor& leaf);

// Weight-gradient work that was put off, in the order in which it arose.
using DeferredWork = std::vector<std::function<void()>>;

struct BackwardOptions {
  DeferredWork* defer = nullptr;  // if set, GradOut::later is put here and run by the caller
};

// Where a graph hangs: an output without its values.
struct GraphEnd {
  std::shared_ptr<Node> node;  // null: needs no gradient
  int output = 0;
  Shape shape;
};
inline GraphEnd graph_end(const Tensor& x) { return {x.node(), x.node_output(), x.shape()}; }

// Propagates the gradients of outputs to all leaves. A graph can be walked once.
void backward(std::span<const GraphEnd> ends, std::span<const Tensor> gradients,
              const BackwardOptions& options = {});
void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients,
              const BackwardOptions& options = {});
inline void backward(const Tensor& output, const Tensor& gradient,
                     const BackwardOptions& options = {}) {
  backward(std::span(&output, 1), std::span(&gradient, 1), options);
}

}  // namespace phx
