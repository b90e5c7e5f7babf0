// The memory of a model's parameters: one flat buffer of weights and one of main gradients, so that
// the norm, the optimizer and the reductions are few long passes. Parameters that are treated alike
// lie together, and the whole is cut into buckets, which data-parallel ranks exchange one by one.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/nn/module.h"

namespace phx {

struct StoreOptions {
  DType dtype = DType::f32;           // of the weights
  std::optional<DType> gradients_in;  // none: acc_dtype
  uint64_t seed = 1234;
  bool gradients = true;  // false: inference
  bool buffers = false;   // the model's buffers instead of its parameters; without gradients
  bool initialize = true;
  // Vectors that decay although norms and biases do not, by name.
  std::function<bool(const std::string& name)> also_decays = {};
  // Parameters of the same class lie together, lower ones first: what is reduced alike, for few
  // long reductions. None: all are of one class.
  std::function<int(const Parameter&)> reduction_class = {};
  // Parameters whose learning rate has a schedule of its own, by name.
  std::function<bool(const std::string& name)> decoupled = {};
  // A bucket is closed when it has this many elements; 0: never.
  int64_t bucket_elements = 0;
  // Ranks that a bucket is cut over evenly: its size is a multiple of that many aligned pieces.
  int64_t bucket_parts = 1;
  int64_t expert_bucket_parts = 1;  // the same for parameters on the expert grid
};

// Elements [offset, offset + count) of the flat buffers.
struct FlatRange {
  int64_t offset = 0, count = 0;
  int64_t end() const { return offset + count; }
  bool operator==(const FlatRange&) const = default;
};
inline Tensor part(const Tensor& flat, const FlatRange& range) {
  return flat.rows(range.offset, range.count);
}
// What two sorted lists of ranges have in common.
std::vector<FlatRange> intersection(std::span<const FlatRange> a, std::span<const FlatRange> b);

// A contiguous range whose parameters share a weight decay and a learning rate.
struct FlatRun {
  int64_t offset = 0, count = 0;
  bool decays = false;
  bool decoupled = false;
};

struct Bucket {
  FlatRange range;                 // padding at its end included
  Grid grid = Grid::dense;         // of all its parameters
  std::vector<size_t> parameters;  // indices
  bool vectors = false;            // begins with norms and biases, which every layer needs at once
};

class ParameterStore {
 public:
  ParameterStore(Module& model, Device device, const StoreOptions& options)
      : ParameterStore(std::vector<Module*>{&model}, device, options) {}
  // The chunks of a model that this rank holds.
  ParameterStore(const std::vector<Module*>& chunks, Device device, const StoreOptions& options);

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  int64_t offset_of(size_t i) const { return offsets_[i]; }
  FlatRange range_of(size_t i) const {
    return {offsets_[i], parameters_[i]->local_shape().numel()};
  }
  const std::vector<FlatRun>& runs() const { return runs_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // The ranges of the parameters that `f` picks; neighbours are joined.
  std::vector<FlatRange> ranges(const std::function<bool(const Parameter&)>& f) const;
  FlatRange all() const { return {0, size_}; }

  Parameter& find(const std::string& name) const;         // error with the nearest name
  int64_t num_elements() const { return num_elements_; }  // of these parameters, uncut and unpadded

  Tensor& weights() { return weights_; }      // flat, with padding between parameters
  Tensor& gradients() { return gradients_; }  // flat, likewise; padding stays zero
  const Tensor& weights() const { return weights_; }

  void begin_step();
  void finish_step();

 private:
  void lay_out(const StoreOptions& options);

  std::vector<Parameter*> parameters_;
  std::vector<int64_t> offsets_;
  std::vector<FlatRun> runs_;
  std::vector<Bucket> buckets_;
  int64_t size_ = 0, num_elements_ = 0;
  Tensor weights_, gradients_;
};

}  // namespace phx
