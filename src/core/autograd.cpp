#include "phalanx/core/autograd.h"

#include <queue>

#include "phalanx/core/accumulate.h"

namespace phx {

Node::Node(Runtime& runtime) : runtime_(runtime), order_(runtime.next_node_order()) {}

std::vector<Tensor> with_backward_many(std::vector<Tensor> ys, std::span<const Tensor> inputs,
                                       BackwardFn backward, bool always) {
  Runtime& runtime = ys.at(0).runtime();
  bool wanted = always;
  for (const Tensor& input : inputs) wanted |= input.defined() && input.requires_grad();
  for (Tensor& y : ys) y = y.detach();
  if (!wanted || !runtime.grad_enabled()) return ys;

  auto node = std::make_shared<Node>(runtime);
  for (const Tensor& input : inputs) {
    Node::Input edge;
    if (input.defined()) edge = {input.node(), input.node_output(), input.shape(), input.dtype()};
    node->inputs_.push_back(std::move(edge));
  }
  node->gradients_.resize(ys.size());
  node->backward_ = std::move(backward);
  for (size_t i = 0; i < ys.size(); ++i) ys[i].set_node(node, int(i));
  return ys;
}

Tensor with_backward(const Tensor& y, std::initializer_list<Tensor> inputs,
                     std::function<void(const Tensor& dy, GradOut& grad)> backward) {
  return with_backward_many(
      {y}, std::span(inputs.begin(), inputs.size()),
      [backward = std::move(backward)](std::span<const Tensor> dys, GradOut& grad) {
        backward(dys[0], grad);
      })[0];
}

// One walk over a graph: a queue of nodes whose gradients are complete, latest made first. Every
// consumer of a node was made after it, so by the time a node is at the front all its gradients are
// in.
class BackwardRun {
 public:
  explicit BackwardRun(const BackwardOptions& options) : options_(options) {}

  void arrive(const std::shared_ptr<Node>& node, int output, const Tensor& gradient) {
    if (node->is_leaf()) {
      add_to_leaf(*node, gradient);
      return;
    }
    enqueue(node);
    Tensor& slot = node->gradients_[output];
    if (!slot.defined()) {
      slot = gradient;
      return;
    }
    make_sole_owner(slot);
    add_to_sink(gradient, {slot, 1.f});
  }

  Sink sink(const Node::Input& input) {
    if (input.node->is_leaf()) return input.node->leaf_sink();
    enqueue(input.node);
    Tensor& slot = input.node->gradients_[input.output];
    if (slot.defined()) {
      make_sole_owner(slot);
      return {slot, 1.f};
    }
    slot = empty(input.shape, input.dtype, input.node->runtime().device());
    return {slot, 0.f};
  }

  void run() {
    while (!queue_.empty()) {
      const std::shared_ptr<Node> node = queue_.top();
      queue_.pop();
      PHX_CHECK(!node->consumed_, "backward: this graph was already walked; run the forward again");
      node->consumed_ = true;
      step(*node);
    }
  }

  const BackwardOptions& options() const { return options_; }

 private:
  friend class GradOut;

  void step(Node& node) {
    for (const auto& input : node.inputs_)
      if (input.node && input.node->is_leaf()) input.node->leaf_acquire();

    const std::vector<Tensor> dys = std::exchange(node.gradients_, {});
    GradOut grad(*this, node);
    grad.overwritten_.resize(node.inputs_.size());
    {
      GradMode off(node.runtime(), false);
      node.backward_(dys, grad);
    }
    node.backward_ = nullptr;  // frees what the forward saved
    for (size_t i = 0; i < node.inputs_.size(); ++i) {
      const auto& input = node.inputs_[i];
      if (!input.node) continue;
      if (grad.overwritten_[i].defined())
        arrive(input.node, input.output, std::exchange(grad.overwritten_[i], {}));
      if (input.node->is_leaf()) {
        input.node->leaf_release();
        if (!put_off(int(i))) input.node->leaf_done();
      }
    }
    put_off_.clear();
    node.inputs_.clear();
  }

  bool put_off(int i) const {
    for (int index : put_off_)
      if (index == i) return true;
    return false;
  }

  void add_to_leaf(Node& leaf, const Tensor& gradient) {
    if (!leaf.leaf_take(gradient)) add_to_sink(gradient, leaf.leaf_sink());
  }

  void enqueue(const std::shared_ptr<Node>& node) {
    for (const Tensor& gradient : node->gradients_)
      if (gradient.defined()) return;  // it is in the queue since the first one arrived
    PHX_CHECK(!node->consumed_, "backward: this graph was already walked; run the forward again");
    queue_.push(node);
  }

  struct EarlierLast {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->order() < b->order();
    }
  };

  BackwardOptions options_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, EarlierLast>
      queue_;
  std::vector<int> put_off_;  // inputs of the running node whose gradient comes later
};

bool GradOut::wants(int i) const { return node_.inputs_.at(i).node != nullptr; }

Tensor& GradOut::out(int i) {
  const auto& input = node_.inputs_.at(i);
  overwritten_[i] = empty(input.shape, input.dtype, node_.runtime().device());
  return overwritten_[i];
}

Sink GradOut::add(int i) {
  const auto& input = node_.inputs_.at(i);
  if (!input.node) return {empty(input.shape, input.dtype, node_.runtime().device()), 0.f};
  return run_.sink(input);
}

void GradOut::pass(int i, const Tensor& gradient) {
  const auto& input = node_.inputs_.at(i);
  PHX_ASSERT(!input.node || gradient.shape() == input.shape, "a gradient of ", gradient.shape(),
             " for an input of ", input.shape);
  if (input.node) run_.arrive(input.node, input.output, gradient);
}

void GradOut::later(int i, std::function<void(const Sink&)> work) {
  const auto& input = node_.inputs_.at(i);
  if (!input.node) return;
  if (run_.options().defer == nullptr || !input.node->is_leaf()) {
    work(run_.sink(input));
    return;
  }
  run_.put_off_.push_back(i);
  run_.options().defer->push_back([leaf = input.node, work = std::move(work)] {
    {
      GradMode off(leaf->runtime(), false);
      work(leaf->leaf_sink());
    }
    leaf->leaf_done();
  });
}

void GradOut::formed(int i) {
  const auto& input = node_.inputs_.at(i);
  PHX_ASSERT(!input.node || input.node->is_leaf(), "input ", i,
             " is no leaf: its gradient cannot be there before the backward");
}

Sink sink_in_forward(const Tensor& leaf) {
  if (!leaf.requires_grad() || !leaf.runtime().grad_enabled()) return {};
  PHX_ASSERT(leaf.node()->is_leaf(), "only a leaf has a sink in the forward");
  return leaf.node()->leaf_sink();
}

const BackwardOptions& GradOut::options() const { return run_.options(); }

void backward(std::span<const GraphEnd> ends, std::span<const Tensor> gradients,
              const BackwardOptions& options) {
  PHX_CHECK(ends.size() == gradients.size(), "backward: ", ends.size(), " outputs but ",
            gradients.size(), " gradients");
  BackwardRun run(options);
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!gradients[i].defined() || ends[i].node == nullptr) continue;
    PHX_CHECK(gradients[i].shape() == ends[i].shape, "backward: the gradient is ",
              gradients[i].shape(), ", the output ", ends[i].shape);
    run.arrive(ends[i].node, ends[i].output, gradients[i]);
  }
  run.run();
}

void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients,
              const BackwardOptions& options) {
  std::vector<GraphEnd> ends;
  for (const Tensor& output : outputs) ends.push_back(graph_end(output));
  backward(ends, gradients, options);
}

}  // namespace phx
