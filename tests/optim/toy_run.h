// A toy model with an optimizer, whose gradients the test writes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "phalanx/nn/parameter_store.h"
#include "phalanx/optim/optimizer.h"
#include "support/gradients.h"

namespace phx::testing {

class Toy : public Module {
 public:
  Toy() {
    add_parameter("weight", weight);
    add_parameter("bias", bias);
  }
  Parameter weight{whole({30, 20}, Init::normal(1))};
  Parameter bias{whole({20}, Init::normal(1))};
};

// A model with an optimizer for `owned` (empty: all), and steps of it.
struct ToyRun {
  explicit ToyRun(DType dtype, const OptimizerConfig& config = plain(),
                  std::vector<FlatRange> owned = {})
      : config(config),
        store(model, test_device(), {.dtype = dtype, .seed = 5}),
        optimizer(store, config, std::move(owned), /*seed=*/7),
        scalars(test_device()) {}

  // Without decay and clipping.
  static OptimizerConfig plain() { return {.clip_grad = 0}; }

  void fill(Tensor& x, const std::function<double(int64_t)>& f) {
    std::vector<double> values;
    for (int64_t i = 0; i < x.numel(); ++i) values.push_back(f(i));
    copy(from_values(values, x.shape(), x.dtype(), test_device()), x);
  }
  StepResults step(int64_t update, const std::function<double(int64_t)>& gradient,
                   const StepValues& given = {.lr = 0.1}, bool sticky = true) {
    fill(store.gradients(), gradient);
    StepValues values = step_values(update, config.adam_beta1, config.adam_beta2, /*tokens=*/1);
    values.lr = values.decoupled_lr = given.lr;
    values.weight_decay = given.weight_decay;
    values.loss_scale = given.loss_scale;
    scalars.begin_step(values);
    const FlatRange all = store.all();
    optimizer.sum_squares(scalars, std::span(&all, 1));
    optimizer.update(scalars, sticky);
    scalars.publish();
    return scalars.collect();
  }
  std::vector<std::vector<double>> everything() const {
    std::vector<std::vector<double>> all = {to_values(store.weights())};
    for (const OptimizerState& state : optimizer.states())
      if (state.flat.dtype() != DType::u16) all.push_back(to_values(state.flat));
    return all;
  }

  OptimizerConfig config;
  Toy model;
  ParameterStore store;
  Optimizer optimizer;
  StepScalars scalars;
};

inline double at(const Tensor& x, int64_t i) { return to_values(x)[size_t(i)]; }

}  // namespace phx::testing
