#include "phalanx/nn/module.h"

namespace phx {

void Module::for_each_parameter(const std::function<void(const std::string&, Parameter&)>& f,
                                const std::string& prefix) {
  for (auto& [name, parameter] : parameters_) f(prefix + name, *parameter);
  for (auto& [name, child] : children_)
    child->for_each_parameter(f, name.empty() ? prefix : prefix + name + ".");
}

void Module::for_each_buffer(const std::function<void(const std::string&, Parameter&)>& f,
                             const std::string& prefix) {
  for (auto& [name, buffer] : buffers_) f(prefix + name, *buffer);
  for (auto& [name, child] : children_)
    child->for_each_buffer(f, name.empty() ? prefix : prefix + name + ".");
}

void Module::name_parameters() {
  const auto give = [](const std::string& name, Parameter& parameter) { parameter.set_name(name); };
  for_each_parameter(give);
  for_each_buffer(give);
}

void Module::end_step(const StepEnd& step) {
  for (auto& [name, child] : children_) child->end_step(step);
}

}  // namespace phx
