// The memory of a model's parameters: one flat buffer of weights and one of main gradients, so that
// the norm, the optimizer and the reductions are few long passes. Parameters that are treated alike
// lie together, and the whole is cut into buckets, which data-parallel ranks exchange one by one.
//
// With fully sharded data parallelism a bucket is a unit (the embedding, a layer, the head), and a
// rank keeps only its piece of each bucket: of the gradients, or of the weights as well. The whole
// bucket then has a storage without memory (weights_of, gradients_of), which whoever brings the
// pieces together fills for a while (parallel/data/sharded_weights.h, sharded_gradients.h). Offsets
// and ranges always count as if everything were there.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/nn/module.h"

namespace phx {

// A bucket is cut over ranks into aligned pieces of one size, and each piece over its owners again.
struct BucketCut {
  int64_t ranks = 1, rank = 0;    // this rank's place among those with a piece each
  int64_t owners = 1, owner = 0;  // and among those that share the piece's update
};

struct StoreOptions {
  DType dtype = DType::f32;           // of the weights
  std::optional<DType> gradients_in;  // none: acc_dtype
  uint64_t seed = 1234;
  bool gradients = true;  // false: inference
  bool buffers = false;   // the model's buffers instead of its parameters; without gradients
  bool initialize = true;
  // Which parameters the store holds, by name; none: all.
  std::function<bool(const std::string& name)> only = {};
  // Vectors that decay although norms and biases do not, by name.
  std::function<bool(const std::string& name)> also_decays = {};
  // Parameters of the same class lie together, lower ones first: what is reduced alike, for few
  // long reductions. None: all are of one class.
  std::function<int(const Parameter&)> reduction_class = {};
  // Parameters whose learning rate has a schedule of its own, by name.
  std::function<bool(const std::string& name)> decoupled = {};
  // A bucket is closed when it has this many elements; 0: never.
  int64_t bucket_elements = 0;
  // How buckets are cut, of parameters on the dense grid and on the experts'.
  BucketCut cut = {}, expert_cut = {};
  // The unit of a parameter, by name: a bucket a unit and grid. None: buckets by size.
  std::function<std::string(const std::string& name)> unit = {};
  // Only this rank's pieces have memory all the time.
  bool shard_weights = false, shard_gradients = false;
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
  FlatRange piece;                 // this rank's part of it
  FlatRange owned;                 // the part of that which this rank updates
  Grid grid = Grid::dense;         // of all its parameters
  std::vector<size_t> parameters;  // indices
  bool vectors = false;            // begins with norms and biases, which every layer needs at once
  bool is_cut() const { return piece != range; }
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

  // What has memory all the time, flat: the ranges of kept_weights() end to end, with padding
  // between parameters; padding stays zero.
  Tensor& weights() { return weights_; }
  Tensor& gradients() { return gradients_; }
  const Tensor& weights() const { return weights_; }
  const Tensor& gradients() const { return gradients_; }
  const std::vector<FlatRange>& kept_weights() const { return kept_weights_; }
  const std::vector<FlatRange>& kept_gradients() const { return kept_gradients_; }
  // A range that lies within one of those that are kept.
  Tensor weights(const FlatRange& range) const;
  Tensor gradients(const FlatRange& range) const;

  // Of stores that shard them: a whole bucket, which has no memory most of the time. Undefined
  // where the bucket is not cut, since this rank's piece is all of it.
  const Tensor& weights_of(size_t bucket) const { return bucket_weights_.at(bucket); }
  const Tensor& gradients_of(size_t bucket) const { return bucket_gradients_.at(bucket); }
  size_t bucket_of(size_t parameter) const { return bucket_of_[parameter]; }

  void begin_step();
  void finish_step();

 private:
  void lay_out(const StoreOptions& options);
  void take_memory(Device device, const StoreOptions& options);

  std::vector<Parameter*> parameters_;
  std::vector<int64_t> offsets_;
  std::vector<FlatRun> runs_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> units_, bucket_of_;  // per parameter
  int64_t size_ = 0, num_elements_ = 0;
  Tensor weights_, gradients_;
  std::vector<FlatRange> kept_weights_, kept_gradients_;
  std::vector<Tensor> bucket_weights_, bucket_gradients_;
};

}  // namespace phx
