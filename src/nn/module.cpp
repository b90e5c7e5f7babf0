#include "phalanx/nn/module.h"

namespace phx {

void Module::for_each_parameter(const std::function<void(const std::string&, Parameter&)>& f,
                                const std::string& prefix) {
  for (auto& [name, parameter] : parameters_) f(prefix + name, *parameter);
  for (auto& [name, child] : children_)
    child->for_each_parameter(f, name.empty() ? prefix : prefix + name + ".");
}

void Module::name_parameters() {
  for_each_parameter(
      [](const std::string& name, Parameter& parameter) { parameter.set_name(name); });
}

}  // namespace phx
