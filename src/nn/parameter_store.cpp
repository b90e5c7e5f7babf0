#include "phalanx/nn/parameter_store.h"

#include <algorithm>
#include <tuple>

#include "phalanx/base/math.h"
#include "phalanx/base/options.h"

namespace phx {

namespace {

// Every parameter begins at a multiple of 128 elements: 16-byte vector accesses and GEMM operands
// want alignment, and 256 bytes of bf16 is the allocator's own granule.
constexpr int64_t kAlignment = 128;

Tensor view(const Tensor& flat, const FlatRange& range, const Shape& shape) {
  return flat.rows(range.offset, range.count).reshape(shape);
}

// An embedding that several stages have stands apart, in a bucket of its own, so that all of them
// cut it alike. Then matrices, which decay; of each kind experts behind the others, and class by
// class.
auto place(const Parameter& p, const StoreOptions& options) {
  return std::tuple(!p.axes().on_several_stages(), !p.decays(), p.axes().grid,
                    options.reduction_class ? options.reduction_class(p) : 0);
}

}  // namespace

std::vector<FlatRange> intersection(std::span<const FlatRange> a, std::span<const FlatRange> b) {
  std::vector<FlatRange> common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].offset, b[j].offset);
    const int64_t end = std::min(a[i].end(), b[j].end());
    if (begin < end) common.push_back({begin, end - begin});
    (a[i].end() < b[j].end() ? i : j) += 1;
  }
  return common;
}

ParameterStore::ParameterStore(const std::vector<Module*>& chunks, Device device,
                               const StoreOptions& options) {
  for (Module* chunk : chunks) {
    chunk->name_parameters();
    const auto take = [&](const std::string& name, Parameter& p) {
      if (options.also_decays && options.also_decays(name)) p.set_decays();
      parameters_.push_back(&p);
    };
    if (options.buffers)
      chunk->for_each_buffer(take);
    else
      chunk->for_each_parameter(take);
  }
  std::stable_sort(parameters_.begin(), parameters_.end(), [&](Parameter* a, Parameter* b) {
    return place(*a, options) < place(*b, options);
  });
  lay_out(options);

  if (options.buffers && size_ == 0) return;  // most models have none, and take no byte for them
  weights_ = empty({size_}, options.dtype, device, Purpose::weights);
  set_zero(weights_);
  const bool gradients = options.gradients && !options.buffers;
  if (gradients) {
    gradients_ = empty({size_}, options.gradients_in.value_or(acc_dtype(options.dtype)), device,
                       Purpose::gradients);
    set_zero(gradients_);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Shape& shape = parameters_[i]->local_shape();
    parameters_[i]->attach(view(weights_, range_of(i), shape),
                           gradients ? view(gradients_, range_of(i), shape) : Tensor());
    if (options.initialize) parameters_[i]->initialize(options.seed);
  }
}

void ParameterStore::lay_out(const StoreOptions& options) {
  const auto close_bucket = [&] {
    if (buckets_.empty()) return;
    FlatRange& range = buckets_.back().range;
    const int64_t parts =
        buckets_.back().grid == Grid::dense ? options.bucket_parts : options.expert_bucket_parts;
    range.count = round_up(size_ - range.offset, kAlignment * parts);
    runs_.back().count += range.end() - size_;
    size_ = range.end();
  };
  const auto is_tied = [](const Parameter* p) { return p->axes().on_several_stages(); };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter* parameter = parameters_[i];
    const bool full = !buckets_.empty() && options.bucket_elements > 0 &&
                      size_ - buckets_.back().range.offset >= options.bucket_elements;
    // Vectors of all layers lie together: with buckets they have their own, so that no matrix waits
    // for the first layer's norm, or is waited for by it.
    const bool other_kind =
        options.bucket_elements > 0 && i > 0 && parameters_[i - 1]->decays() != parameter->decays();
    const Grid grid = parameter->axes().grid;
    if (i == 0 || full || other_kind || is_tied(parameters_[i - 1]) || is_tied(parameter) ||
        grid != buckets_.back().grid) {
      close_bucket();
      buckets_.push_back(
          {.range = {size_, 0}, .grid = grid, .parameters = {}, .vectors = !parameter->decays()});
    }
    const bool decays = parameter->decays();
    const bool decoupled = options.decoupled && options.decoupled(parameter->name());
    if (runs_.empty() || runs_.back().decays != decays || runs_.back().decoupled != decoupled)
      runs_.push_back({.offset = size_, .count = 0, .decays = decays, .decoupled = decoupled});
    const int64_t size = round_up(parameter->local_shape().numel(), kAlignment);
    runs_.back().count += size;
    buckets_.back().parameters.push_back(i);
    offsets_.push_back(size_);
    size_ += size;
    num_elements_ += parameter->spec().global_shape.numel();
  }
  close_bucket();
}

std::vector<FlatRange> ParameterStore::ranges(
    const std::function<bool(const Parameter&)>& f) const {
  std::vector<FlatRange> picked;
  bool before = false;  // whether the parameter before was picked
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool now = f(*parameters_[i]);
    if (now && before) {
      picked.back().count = range_of(i).end() - picked.back().offset;
    } else if (now) {
      picked.push_back(range_of(i));
    }
    before = now;
  }
  return picked;
}

Parameter& ParameterStore::find(const std::string& name) const {
  for (Parameter* parameter : parameters_)
    if (parameter->name() == name) return *parameter;
  std::vector<std::string> names;
  for (const Parameter* parameter : parameters_) names.push_back(parameter->name());
  const std::string near = nearest(name, names);
  throw_error(str_cat("the model has no parameter '", name, "'",
                      near.empty() ? "" : str_cat("\n  hint: did you mean '", near, "'?")));
}

void ParameterStore::begin_step() {
  for (Parameter* parameter : parameters_) parameter->begin_step();
}

void ParameterStore::finish_step() {
  for (Parameter* parameter : parameters_) parameter->finish_step();
}

}  // namespace phx
