// A tree of named parts. Names are the checkpoint's names: Megatron-Core's.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/nn/parameter.h"

namespace phx {

// What parts hear at the end of a step.
struct StepEnd {
  Tensor tally;  // what they counted (ForwardContext::router_tally), summed over all ranks
  Tensor skip;   // f64 [1]: 1 if the step left the weights as they were
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // children and parameters are registered by address
  Module& operator=(const Module&) = delete;

  // Every parameter with its full name, in the order of registration, depth first.
  void for_each_parameter(const std::function<void(const std::string& name, Parameter&)>& f,
                          const std::string& prefix = "");
  // The same of buffers: vectors that a part keeps from step to step and a checkpoint holds, but
  // that have no gradient, so that no optimizer and no norm knows them.
  void for_each_buffer(const std::function<void(const std::string& name, Parameter&)>& f,
                       const std::string& prefix = "");
  // Gives every parameter and buffer its full name: called once, on the whole model.
  void name_parameters();

  // A step's update has been enqueued: parts may bring their buffers up to date.
  virtual void end_step(const StepEnd& step);

 protected:
  // Without a name the child's parameters stand directly under this module's.
  void add_child(std::string name, Module& child) {
    children_.emplace_back(std::move(name), &child);
  }
  void add_parameter(std::string name, Parameter& parameter) {
    parameters_.emplace_back(std::move(name), &parameter);
  }

  void add_buffer(std::string name, Parameter& buffer) {
    buffers_.emplace_back(std::move(name), &buffer);
  }

 private:
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::pair<std::string, Parameter*>> parameters_, buffers_;
};

}  // namespace phx
