// The memory of a model's parameters: one flat buffer of weights and one of main gradients, so that
// the norm, the optimizer and later the reductions are single passes. Decayed parameters come
// first.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace phx {

struct StoreOptions {
  DType dtype = DType::f32;  // of the weights; gradients have acc_dtype
  uint64_t seed = 1234;
  bool gradients = true;  // false: inference
  bool initialize = true;
  // Vectors that decay although norms and biases do not, by name.
  std::function<bool(const std::string& name)> also_decays = {};
  // Parameters whose learning rate has a schedule of its own, by name.
  std::function<bool(const std::string& name)> decoupled = {};
};

// A contiguous range of the flat buffers whose parameters share a weight decay and a learning rate.
struct FlatRun {
  int64_t offset = 0, count = 0;  // elements
  bool decays = false;
  bool decoupled = false;
};

class ParameterStore {
 public:
  ParameterStore(Module& model, Device device, const StoreOptions& options);

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  int64_t offset_of(size_t i) const { return offsets_[i]; }
  const std::vector<FlatRun>& runs() const { return runs_; }
  Parameter& find(const std::string& name) const;         // error with the nearest names
  int64_t num_elements() const { return num_elements_; }  // of the model: unpadded

  Tensor& weights() { return weights_; }      // flat, with padding between parameters
  Tensor& gradients() { return gradients_; }  // flat, likewise; padding stays zero

  void begin_step();
  void finish_step();

 private:
  std::vector<Parameter*> parameters_;
  std::vector<int64_t> offsets_;
  std::vector<FlatRun> runs_;
  int64_t num_elements_ = 0;
  Tensor weights_, gradients_;
};

}  // namespace phx
