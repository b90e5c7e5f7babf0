// A piece of forward with detached inputs and its own graph. Pipeline stages, layers and recomputed
// blocks are segments; schedules, recompute, offload and overlap are policies over them.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "phalanx/core/autograd.h"

namespace phx {

class Segment {
 public:
  using Forward = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

  // Runs the forward now, on detached copies of the inputs' handles.
  Segment(std::span<const Tensor> inputs, const Forward& forward);

  const std::vector<Tensor>& outputs() const { return outputs_; }  // without graph
  // The outputs leave the segment, which does not need their values: a pipeline stage drops them
  // as soon as they are sent.
  std::vector<Tensor> take_outputs() { return std::exchange(outputs_, {}); }

  // Gradients of the inputs, in order; undefined for inputs that are not floating. Once only: the
  // graph is gone afterwards.
  std::vector<Tensor> backward(std::span<const Tensor> douts, const BackwardOptions& options = {});

 private:
  std::vector<Tensor> inputs_;  // detached, each with a leaf that collects its gradient
  std::vector<GraphEnd> ends_;  // where the outputs' graph hangs
  std::vector<Tensor> outputs_;
};

// forward(inputs), but nothing inside is kept: the backward runs it again from the inputs.
// Randomness is a pure function of global indices, so the second run draws the same numbers without
// any state.
std::vector<Tensor> recompute(std::span<const Tensor> inputs, const Segment::Forward& forward);

// The same for a function of every row by itself, x [s, ..] -> y [s, ..], in `pieces` of rows one
// after the other, forward and backward: what is inside takes the memory of one piece.
Tensor recompute_rows(const Tensor& x, int64_t pieces,
                      const std::function<Tensor(const Tensor& rows)>& forward);
// Its graph alone, for whoever needs no value: memory of y's shape that nobody has written.
Tensor recompute_rows_later(const Tensor& x, const Shape& y, int64_t pieces,
                            const std::function<Tensor(const Tensor& rows)>& forward);

}  // namespace phx
