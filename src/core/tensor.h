// A tensor: a handle on a storage, with shape, dtype and device. Contiguous, row-major; views by
// reshape and by cutting the first dimension only. Copying a Tensor copies the handle.
//
// A tensor made by an op under grad mode also knows the graph node that made it (core/autograd.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "phalanx/core/dtype.h"
#include "phalanx/core/runtime.h"
#include "phalanx/core/shape.h"

namespace phx {

class Node;

class Storage {
 public:
  Storage(Runtime& runtime, int64_t bytes, Purpose purpose, StreamName stream);
  // Without memory, until take_again() is called.
  static std::shared_ptr<Storage> absent(Runtime& runtime, int64_t bytes, Purpose purpose);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return block_.data; }
  int64_t bytes() const { return block_.bytes; }
  Purpose purpose() const { return block_.purpose; }
  Runtime& runtime() const { return runtime_; }

  // Its memory is given back, and later there is new memory for the same tensors, to be filled by
  // whoever kept the bytes (core/layer_offload.h, parallel/data/sharded_weights.h). In between
  // nobody may read or write them.
  void give_back();
  void take_again();
  bool resident() const { return resident_; }

 private:
  Storage(Runtime& runtime, const Block& block)
      : runtime_(runtime), block_(block), resident_(false) {}

  Runtime& runtime_;
  Block block_;
  bool resident_ = true;
};

class Tensor {
 public:
  Tensor() = default;  // "no tensor": defined() is false
  Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, const Shape& shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int rank() const { return shape_.rank(); }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->runtime().device(); }
  Runtime& runtime() const { return storage_->runtime(); }

  void* raw() const;  // refused on meta
  template <class T>
  T* data() const {
    PHX_ASSERT(dtype_of<T>() == dtype_, "a tensor of ", dtype_, " is read as ", dtype_of<T>());
    return static_cast<T*>(raw());
  }

  // The same bytes under another shape; one dimension may be -1. Differentiable (see autograd).
  Tensor reshape(const Shape& shape) const;
  // Rows [begin, begin + count) of the first dimension. Not recorded for the backward.
  Tensor rows(int64_t begin, int64_t count) const;
  // This tensor without its graph.
  Tensor detach() const;
  // Whether nobody else holds this storage, so that it may be overwritten.
  bool sole_owner() const { return storage_.use_count() == 1; }
  bool same_storage(const Tensor& other) const { return storage_ == other.storage_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  // --- autograd, see core/autograd.h
  const std::shared_ptr<Node>& node() const { return node_; }
  int node_output() const { return node_output_; }
  bool requires_grad() const { return node_ != nullptr; }
  void set_node(std::shared_ptr<Node> node, int output) {
    node_ = std::move(node);
    node_output_ = output;
  }

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::f32;
  std::shared_ptr<Node> node_;
  int node_output_ = 0;
};

// Uninitialised memory, charged to the runtime's current purpose.
Tensor empty(const Shape& shape, DType dtype, Device device);
Tensor empty(const Shape& shape, DType dtype, Device device, Purpose purpose);
Tensor empty_like(const Tensor& x);
Tensor zeros(const Shape& shape, DType dtype, Device device);
void set_zero(Tensor& x);

// Bytes between host and device, and between tensors of one device. All on the compute stream.
void copy_from_host(Tensor& dst, const void* src);
void copy_to_host(const Tensor& src, void* dst);  // waits for the device
void copy(const Tensor& src, Tensor& dst);        // the same shape and dtype
// dst [.., w] = columns [first, first + w) of src [.., wider].
void copy_columns(const Tensor& src, int64_t first, Tensor& dst);
// Columns [to, to + width) of dst [.., any] = columns [from, from + width) of src [.., any].
void copy_columns(const Tensor& src, int64_t from, int64_t width, const Tensor& dst, int64_t to);
Tensor to_device(const Tensor& src, Device device);

// From and to vectors, converting to the tensor's dtype. For tests, small tables and checkpoints.
Tensor from_values(std::span<const double> values, const Shape& shape, DType dtype, Device device);
Tensor from_ints(std::span<const int64_t> values, const Shape& shape, DType dtype, Device device);
std::vector<double> to_values(const Tensor& x);

}  // namespace phx
