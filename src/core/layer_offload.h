// Saved activations in host memory between forward and backward (--cpu-offloading-num-layers).
//
// What a layer keeps for its backward are the activations that were made while it ran and are still
// alive when it has ended (the closures of its graph hold them), and its input. They are copied to
// the host while the next layer computes, and then their memory is given back; closures keep their
// handles. When the backward reaches the layer above, they get new memory and are copied back, so
// that they are there when their own layer's turn comes.
//
//   forward of layer   i         i + 1        i + 2
//   d2h                          saves i      saves i + 1
//   given back                            i            i + 1
//   backward of layer  i + 2     i + 1        i
//   h2d                saves i+1 saves i
//
// Copies move bytes only: with and without offload a step computes the same bits.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "phalanx/core/host_side.h"

namespace phx {

// One forward through a stack of layers, from the first on.
class LayerOffload {
 public:
  using Layer = std::function<Tensor(const Tensor& x)>;

  explicit LayerOffload(Runtime& runtime);
  ~LayerOffload();
  LayerOffload(const LayerOffload&) = delete;
  LayerOffload& operator=(const LayerOffload&) = delete;

  // layer(x), saved in host memory. The caller holds x no longer.
  Tensor run(Tensor x, const Layer& layer);
  // layer(x), saved on the device: one above those of run.
  Tensor run_kept(Tensor x, const Layer& layer);
  // After the last layer: nothing is on its way to the host any more.
  void finish();

 private:
  class Saves;
  Tensor with_hook(const Tensor& y, std::shared_ptr<Saves> own, std::shared_ptr<Saves> below);

  Runtime& runtime_;
  std::shared_ptr<Saves> leaving_;  // of the layer before, on their way to the host
  std::shared_ptr<Saves> last_;     // of the layer before, if it was offloaded
};

}  // namespace phx
