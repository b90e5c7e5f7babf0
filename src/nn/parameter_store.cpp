#include "phalanx/nn/parameter_store.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "phalanx/base/math.h"
#include "phalanx/base/options.h"

namespace phx {

namespace {

// Every parameter begins at a multiple of 128 elements: 16-byte vector accesses and GEMM operands
// want alignment, and 256 bytes of bf16 is the allocator's own granule.
constexpr int64_t kAlignment = 128;

// An embedding that several stages have stands apart, in a bucket of its own, so that all of them
// cut it alike. Then unit by unit, of each the dense grid before the experts'. Without units there
// is one, of both grids. In it matrices, which decay, come before vectors; of each kind experts
// behind the others, and class by class.
auto place(const Parameter& p, size_t unit, const StoreOptions& options) {
  return std::tuple(!p.axes().on_several_stages(), unit, options.unit ? p.axes().grid : Grid::dense,
                    !p.decays(), p.axes().grid,
                    options.reduction_class ? options.reduction_class(p) : 0);
}

// The part of a flat buffer of `kept` ranges, end to end, that holds `range`.
Tensor kept_part(const Tensor& flat, std::span<const FlatRange> kept, const FlatRange& range) {
  int64_t at = 0;
  for (const FlatRange& have : kept) {
    if (range.offset >= have.offset && range.end() <= have.end())
      return flat.rows(at + range.offset - have.offset, range.count);
    at += have.count;
  }
  throw_error(str_cat("elements ", range.offset, " to ", range.end(),
                      " of a parameter store are kept by other ranks"));
}

FlatRange part_of(const FlatRange& range, int64_t parts, int64_t part) {
  return {range.offset + range.count / parts * part, range.count / parts};
}

// A bucket's tensor without memory.
Tensor absent(int64_t count, DType dtype, Device device, Purpose purpose) {
  return {Storage::absent(device.runtime(), count * size_of(dtype), purpose), 0, {count}, dtype};
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
  struct Found {
    Parameter* parameter;
    size_t unit;
  };
  std::vector<Found> found;
  std::vector<std::string> units;  // in the order of the model
  for (Module* chunk : chunks) {
    chunk->name_parameters();
    const auto take = [&](const std::string& name, Parameter& p) {
      if (options.only && !options.only(name)) return;
      if (options.also_decays && options.also_decays(name)) p.set_decays();
      const std::string unit = options.unit ? options.unit(name) : "";
      const auto known = std::ranges::find(units, unit);
      found.push_back({&p, size_t(known - units.begin())});
      if (known == units.end()) units.push_back(unit);
    };
    if (options.buffers)
      chunk->for_each_buffer(take);
    else
      chunk->for_each_parameter(take);
  }
  std::ranges::stable_sort(found, [&](const Found& a, const Found& b) {
    return place(*a.parameter, a.unit, options) < place(*b.parameter, b.unit, options);
  });
  for (const Found& one : found) {
    parameters_.push_back(one.parameter);
    units_.push_back(one.unit);
  }
  lay_out(options);
  // Most models have no buffers and nothing frozen, and take no byte for them.
  if (size_ == 0 && (options.buffers || !options.gradients)) return;
  take_memory(device, options);
  if (!options.initialize) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const FlatRange own = range_of(i);
    for (const FlatRange& kept : intersection({&own, 1}, kept_weights_))
      parameters_[i]->initialize(options.seed, weights(kept), kept.offset - own.offset);
  }
}

void ParameterStore::take_memory(Device device, const StoreOptions& options) {
  const bool with_gradients = options.gradients && !options.buffers;
  const bool cut_weights = options.shard_weights, cut_gradients = options.shard_gradients;
  const FlatRange whole = all();
  std::vector<FlatRange> pieces;
  for (const Bucket& bucket : buckets_) {
    // Whole buckets, as one rank has them, lie side by side and are one range.
    if (!pieces.empty() && pieces.back().end() == bucket.piece.offset)
      pieces.back().count += bucket.piece.count;
    else
      pieces.push_back(bucket.piece);
  }
  const auto make = [&](bool cut, DType dtype, Purpose purpose, std::vector<FlatRange>& kept) {
    kept = cut ? pieces : std::vector{whole};
    int64_t count = 0;
    for (const FlatRange& range : kept) count += range.count;
    Tensor flat = empty({count}, dtype, device, purpose);
    set_zero(flat);
    return flat;
  };
  const DType main = options.gradients_in.value_or(acc_dtype(options.dtype));
  weights_ = make(cut_weights, options.dtype, Purpose::weights, kept_weights_);
  if (with_gradients) gradients_ = make(cut_gradients, main, Purpose::gradients, kept_gradients_);
  bucket_weights_.resize(buckets_.size());
  bucket_gradients_.resize(buckets_.size());
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].is_cut()) continue;
    const int64_t count = buckets_[i].range.count;
    if (cut_weights) bucket_weights_[i] = absent(count, options.dtype, device, Purpose::weights);
    if (cut_gradients && with_gradients)
      bucket_gradients_[i] = absent(count, main, device, Purpose::gradients);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Shape& shape = parameters_[i]->local_shape();
    const FlatRange own = range_of(i);
    const int64_t bucket_begin = buckets_[bucket_of_[i]].range.offset;
    const auto in_bucket = [&](const Tensor& bucket) {
      return bucket.rows(own.offset - bucket_begin, own.count).reshape(shape);
    };
    const Tensor& cut_weight = bucket_weights_[bucket_of_[i]];
    const Tensor& cut_gradient = bucket_gradients_[bucket_of_[i]];
    Tensor value = cut_weight.defined() ? in_bucket(cut_weight) : weights(own).reshape(shape);
    Tensor gradient;
    if (with_gradients)
      gradient = cut_gradient.defined() ? in_bucket(cut_gradient) : gradients(own).reshape(shape);
    parameters_[i]->attach(std::move(value), std::move(gradient));
  }
}

void ParameterStore::lay_out(const StoreOptions& options) {
  const auto close_bucket = [&] {
    if (buckets_.empty()) return;
    Bucket& bucket = buckets_.back();
    FlatRange& range = bucket.range;
    const BucketCut& cut = bucket.grid == Grid::dense ? options.cut : options.expert_cut;
    range.count = round_up(size_ - range.offset, kAlignment * cut.ranks * cut.owners);
    bucket.piece = part_of(range, cut.ranks, cut.rank);
    bucket.owned = part_of(bucket.piece, cut.owners, cut.owner);
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
    const bool other_unit = i > 0 && units_[i - 1] != units_[i];
    const Grid grid = parameter->axes().grid;
    if (i == 0 || full || other_kind || other_unit || is_tied(parameters_[i - 1]) ||
        is_tied(parameter) || grid != buckets_.back().grid) {
      close_bucket();
      buckets_.push_back({.range = {size_, 0},
                          .piece = {},
                          .owned = {},
                          .grid = grid,
                          .parameters = {},
                          .vectors = !parameter->decays()});
    }
    const bool decays = parameter->decays();
    const bool decoupled = options.decoupled && options.decoupled(parameter->name());
    if (runs_.empty() || runs_.back().decays != decays || runs_.back().decoupled != decoupled)
      runs_.push_back({.offset = size_, .count = 0, .decays = decays, .decoupled = decoupled});
    const int64_t size = round_up(parameter->local_shape().numel(), kAlignment);
    runs_.back().count += size;
    buckets_.back().parameters.push_back(i);
    bucket_of_.push_back(buckets_.size() - 1);
    offsets_.push_back(size_);
    size_ += size;
    num_elements_ += parameter->spec().global_shape.numel();
  }
  close_bucket();
}

Tensor ParameterStore::weights(const FlatRange& range) const {
  return kept_part(weights_, kept_weights_, range);
}

Tensor ParameterStore::gradients(const FlatRange& range) const {
  return kept_part(gradients_, kept_gradients_, range);
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
