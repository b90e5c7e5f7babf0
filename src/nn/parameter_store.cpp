#include "nn/parameter_store.h"

#include <algorithm>

#include "base/math.h"

namespace phx {

namespace {

// Every parameter begins at a multiple of 128 elements: 16-byte vector accesses and GEMM operands
// want alignment, and 256 bytes of bf16 is the allocator's own granule.
constexpr int64_t kAlignment = 128;

Tensor view(const Tensor& flat, int64_t offset, const Shape& shape) {
  return flat.rows(offset, shape.numel()).reshape(shape);
}

}  // namespace

ParameterStore::ParameterStore(Module& model, Device device, const StoreOptions& options) {
  model.name_parameters();
  model.for_each_parameter([&](const std::string& name, Parameter& p) {
    if (options.also_decays && options.also_decays(name)) p.set_decays();
    parameters_.push_back(&p);
  });
  std::stable_sort(parameters_.begin(), parameters_.end(),
                   [](Parameter* a, Parameter* b) { return a->decays() > b->decays(); });

  int64_t total = 0;
  for (Parameter* parameter : parameters_) {
    const int64_t size = round_up(parameter->local_shape().numel(), kAlignment);
    const bool decays = parameter->decays();
    const bool decoupled = options.decoupled && options.decoupled(parameter->name());
    if (runs_.empty() || runs_.back().decays != decays || runs_.back().decoupled != decoupled)
      runs_.push_back({.offset = total, .count = 0, .decays = decays, .decoupled = decoupled});
    runs_.back().count += size;
    offsets_.push_back(total);
    total += size;
    num_elements_ += parameter->spec().global_shape.numel();
  }
  weights_ = empty({total}, options.dtype, device, Purpose::weights);
  set_zero(weights_);
  if (options.gradients) {
    gradients_ = empty({total}, acc_dtype(options.dtype), device, Purpose::gradients);
    set_zero(gradients_);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Shape shape = parameters_[i]->local_shape();
    parameters_[i]->attach(view(weights_, offsets_[i], shape),
                           options.gradients ? view(gradients_, offsets_[i], shape) : Tensor());
    if (options.initialize) parameters_[i]->initialize(options.seed);
  }
}

Parameter& ParameterStore::find(const std::string& name) const {
  for (Parameter* parameter : parameters_)
    if (parameter->name() == name) return *parameter;
  throw_error(str_cat("the model has no parameter '", name, "'"));
}

void ParameterStore::begin_step() {
  for (Parameter* parameter : parameters_) parameter->begin_step();
}

void ParameterStore::finish_step() {
  for (Parameter* parameter : parameters_) parameter->finish_step();
}

}  // namespace phx
