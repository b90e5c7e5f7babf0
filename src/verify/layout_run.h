// A few training steps of a layout on CPU ranks that are threads of this process, and everything
// that must not depend on the layout, put together from all ranks: loss, gradient norm, what
// routers report, every parameter's gradient and weight and every buffer as the global tensor.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/train/session.h"

namespace phx {

struct GlobalTensor {
  std::vector<double> values;  // in global order
  int64_t missing = 0;         // elements that no rank holds
};
using GlobalTensors = std::map<std::string, GlobalTensor>;  // by parameter

struct StepOutcome {
  double loss = 0, grad_norm = 0;
  GlobalTensors gradients;  // before clipping
  // What the log says of the routers, layer by layer: "z_loss of layer 2".
  std::map<std::string, double> routers = {};
};

struct LayoutOutcome {
  std::vector<StepOutcome> steps;
  double evaluation = 0;       // the loss on validation data after the last step, if asked for
  GlobalTensors weights;       // after the last step
  GlobalTensors buffers = {};  // after the last step: biases and loads of experts
  // The largest difference between two ranks that hold the same element of one of these.
  double between_replicas = 0;
  std::vector<std::string> between_replicas_in;  // names with a difference
};

struct LayoutRun {
  int steps = 2;
  bool keep_gradients = true;  // false: losses, norms and weights only
  bool evaluate = true;
};

// Some steps from the initial weights, on `world` ranks. The layout is the config's.
LayoutOutcome run_layout(const RunConfig& config, int world, const LayoutRun& run = {});
// The same from given sources, for many runs on the same data.
LayoutOutcome run_layout(const RunConfig& config, const Sources& sources, int world,
                         const LayoutRun& run = {});
// The same tokens, micro-batches and model on one rank, with nothing recomputed.
RunConfig on_one_rank(const RunConfig& config, int world);

}  // namespace phx
