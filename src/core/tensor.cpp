#include "phalanx/core/tensor.h"

#include <utility>

#include "phalanx/core/autograd.h"

namespace phx {

Storage::Storage(Runtime& runtime, int64_t bytes, Purpose purpose, StreamName stream)
    : runtime_(runtime),
      block_(runtime.allocator().allocate(bytes, purpose, static_cast<uint8_t>(stream))) {}

std::shared_ptr<Storage> Storage::absent(Runtime& runtime, int64_t bytes, Purpose purpose) {
  return std::shared_ptr<Storage>(
      new Storage(runtime, {.bytes = Allocator::charged(bytes),
                            .purpose = purpose,
                            .stream = static_cast<uint8_t>(StreamName::compute)}));
}

Storage::~Storage() {
  if (resident_) runtime_.allocator().release(block_);
}

void Storage::give_back() {
  PHX_ASSERT(resident_, "memory is given back twice");
  runtime_.allocator().release(block_);
  resident_ = false;
}

void Storage::take_again() {
  PHX_ASSERT(!resident_, "memory is taken that was not given back");
  block_ = runtime_.allocator().allocate(block_.bytes, block_.purpose, block_.stream);
  resident_ = true;
}

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, const Shape& shape,
               DType dtype)
    : storage_(std::move(storage)), offset_(offset_bytes), shape_(shape), dtype_(dtype) {
  PHX_ASSERT(offset_ + bytes() <= storage_->bytes(), "a tensor reaches past its storage");
}

void* Tensor::raw() const {
  PHX_ASSERT(defined(), "an undefined tensor is read");
  PHX_ASSERT(device().kind() != DeviceKind::meta, "a meta tensor has no data");
  PHX_ASSERT(storage_->resident(), "a tensor is used while its memory is given back");
  return static_cast<char*>(storage_->data()) + offset_;
}

Tensor Tensor::reshape(const Shape& wanted) const {
  Shape shape = wanted;
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == kOpenDim)
      open = i;
    else
      known *= shape[i];
  }
  if (open >= 0) {
    PHX_CHECK(known > 0 && numel() % known == 0, "reshape: ", shape_, " has ", numel(),
              " elements, which the given dimensions (", known, ") do not divide");
    shape.set(open, numel() / known);
  }
  PHX_CHECK(shape.numel() == numel(), "reshape: ", shape_, " has ", numel(), " elements, but ",
            shape, " has ", shape.numel());
  Tensor view(storage_, offset_, shape, dtype_);
  if (!requires_grad()) return view;
  const Shape before = shape_;
  return with_backward(view, {*this}, [before](const Tensor& dy, GradOut& grad) {
    grad.pass(0, dy.reshape(before));
  });
}

Tensor Tensor::rows(int64_t begin, int64_t count) const {
  PHX_CHECK(rank() > 0 && begin >= 0 && count >= 0 && begin + count <= dim(0), "rows: [", begin,
            ", ", begin + count, ") is outside of ", shape_);
  Shape shape = shape_;
  shape.set(0, count);
  const int64_t row_bytes = dim(0) == 0 ? 0 : bytes() / dim(0);
  return Tensor(storage_, offset_ + begin * row_bytes, shape, dtype_);
}

Tensor Tensor::detach() const {
  return defined() ? Tensor(storage_, offset_, shape_, dtype_) : Tensor();
}

Tensor empty(const Shape& shape, DType dtype, Device device, Purpose purpose) {
  const int64_t bytes = shape.numel() * size_of(dtype);
  Runtime& runtime = device.runtime();
  const auto storage = std::make_shared<Storage>(runtime, bytes, purpose, StreamName::compute);
  if (runtime.made_storages() != nullptr) runtime.made_storages()->push_back(storage);
  return Tensor(storage, 0, shape, dtype);
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  return empty(shape, dtype, device, device.runtime().purpose());
}

Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }

Tensor zeros(const Shape& shape, DType dtype, Device device) {
  Tensor x = empty(shape, dtype, device);
  set_zero(x);
  return x;
}

void set_zero(Tensor& x) {
  if (x.device().kind() == DeviceKind::meta) return;
  x.runtime().backend().set_zero(x.raw(), x.bytes(), StreamName::compute);
}

void copy_from_host(Tensor& dst, const void* src) {
  if (dst.device().kind() == DeviceKind::meta) return;
  dst.runtime().backend().copy_to_device(dst.raw(), src, dst.bytes(), StreamName::compute);
}

void copy_to_host(const Tensor& src, void* dst) {
  PHX_CHECK(src.device().kind() != DeviceKind::meta, "a meta tensor has no values to read");
  src.runtime().backend().copy_to_host(dst, src.raw(), src.bytes(), StreamName::compute);
  src.runtime().synchronize();
}

void copy(const Tensor& src, Tensor& dst) {
  PHX_CHECK(src.shape() == dst.shape() && src.dtype() == dst.dtype(), "copy: from ", src.shape(),
            " ", src.dtype(), " to ", dst.shape(), " ", dst.dtype());
  PHX_CHECK(src.device() == dst.device(),
            "copy: the tensors are on different devices; use to_device");
  if (src.device().kind() == DeviceKind::meta) return;
  src.runtime().backend().copy_within(dst.raw(), src.raw(), src.bytes(), StreamName::compute);
}

void copy_columns(const Tensor& src, int64_t from, int64_t width, const Tensor& dst, int64_t to) {
  const int64_t rows = dst.numel() / dst.dim(-1), size = size_of(src.dtype());
  PHX_CHECK(src.dtype() == dst.dtype() && src.numel() / src.dim(-1) == rows &&
                from + width <= src.dim(-1) && to + width <= dst.dim(-1),
            "copy_columns: columns [", from, ", ", from + width, ") of ", src.shape(), " ",
            src.dtype(), " do not fit ", dst.shape(), " ", dst.dtype(), " at column ", to);
  if (src.device().kind() == DeviceKind::meta) return;
  src.runtime().backend().copy_rows({.dst = static_cast<char*>(dst.raw()) + to * size,
                                     .dst_pitch = dst.dim(-1) * size,
                                     .src = static_cast<const char*>(src.raw()) + from * size,
                                     .src_pitch = src.dim(-1) * size,
                                     .row_bytes = width * size,
                                     .rows = rows},
                                    StreamName::compute);
}

void copy_columns(const Tensor& src, int64_t first, Tensor& dst) {
  copy_columns(src, first, dst.dim(-1), dst, 0);
}

Tensor to_device(const Tensor& src, Device device) {
  Tensor dst = empty(src.shape(), src.dtype(), device);
  if (device.kind() == DeviceKind::meta) return dst;
  std::vector<char> bytes(src.bytes());
  copy_to_host(src, bytes.data());
  copy_from_host(dst, bytes.data());
  device.runtime().synchronize();  // the host buffer ends with this function
  return dst;
}

namespace {

template <class Value>
Tensor from_host_values(std::span<const Value> values, const Shape& shape, DType dtype,
                        Device device) {
  PHX_CHECK(int64_t(values.size()) == shape.numel(), values.size(), " values do not fill ", shape);
  Tensor x = empty(shape, dtype, device);
  for_any_dtype(dtype, [&]<class T>() {
    std::vector<T> host(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (sizeof(T) <= 2 && !std::is_integral_v<T>)
        host[i] = T(float(values[i]));
      else
        host[i] = static_cast<T>(values[i]);
    }
    copy_from_host(x, host.data());
    device.runtime().synchronize();
  });
  return x;
}

}  // namespace

Tensor from_values(std::span<const double> values, const Shape& shape, DType dtype, Device device) {
  return from_host_values(values, shape, dtype, device);
}

Tensor from_ints(std::span<const int64_t> values, const Shape& shape, DType dtype, Device device) {
  return from_host_values(values, shape, dtype, device);
}

std::vector<double> to_values(const Tensor& x) {
  std::vector<double> values(x.numel());
  for_any_dtype(x.dtype(), [&]<class T>() {
    std::vector<T> host(x.numel());
    copy_to_host(x, host.data());
    for (size_t i = 0; i < host.size(); ++i) {
      if constexpr (std::is_class_v<T>)
        values[i] = float(host[i]);
      else
        values[i] = double(host[i]);
    }
  });
  return values;
}

}  // namespace phx
