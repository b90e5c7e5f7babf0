// A few tensors by name, in the order in which they were put in: the inputs of a micro-batch, or
// what one pipeline stage passes to the next.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "phalanx/core/tensor.h"

namespace phx {

class NamedTensors {
 public:
  using Entry = std::pair<std::string, Tensor>;
  NamedTensors() = default;
  NamedTensors(std::initializer_list<Entry> entries) : entries_(entries) {}

  void add(std::string name, Tensor tensor) {
    PHX_CHECK(find(name) == nullptr, "there is a tensor ", name, " already");
    entries_.emplace_back(std::move(name), std::move(tensor));
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Throws and says which tensors there are.
  const Tensor& at(std::string_view name) const {
    const Tensor* tensor = find(name);
    if (tensor == nullptr) {
      std::string names;
      for (const Entry& entry : entries_) names += (names.empty() ? "" : ", ") + entry.first;
      throw_error(str_cat("there is no tensor ", std::string(name), ", only: ", names));
    }
    return *tensor;
  }
  // Undefined if there is none.
  Tensor get(std::string_view name) const {
    const Tensor* tensor = find(name);
    return tensor == nullptr ? Tensor() : *tensor;
  }

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (const Entry& entry : entries_) all.push_back(entry.second);
    return all;
  }

 private:
  const Tensor* find(std::string_view name) const {
    for (const Entry& entry : entries_)
      if (entry.first == name) return &entry.second;
    return nullptr;
  }
  std::vector<Entry> entries_;
};

// A tensor that will be: known before the step, so that memory can be planned.
struct TensorSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

}  // namespace phx
