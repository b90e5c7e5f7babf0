// A tree of named parts. Names are the checkpoint's names: Megatron-Core's.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/nn/parameter.h"

namespace phx {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // children and parameters are registered by address
  Module& operator=(const Module&) = delete;

  // Every parameter with its full name, in the order of registration, depth first.
  void for_each_parameter(const std::function<void(const std::string& name, Parameter&)>& f,
                          const std::string& prefix = "");
  // Gives every parameter its full name: called once, on the whole model.
  void name_parameters();

 protected:
  // Without a name the child's parameters stand directly under this module's.
  void add_child(std::string name, Module& child) {
    children_.emplace_back(std::move(name), &child);
  }
  void add_parameter(std::string name, Parameter& parameter) {
    parameters_.emplace_back(std::move(name), &parameter);
  }

 private:
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::pair<std::string, Parameter*>> parameters_;
};

}  // namespace phx
