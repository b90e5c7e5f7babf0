// Named tensors that lie somewhere: in a native checkpoint, a Hugging Face folder, a torch_dist
// directory. A source says what it holds and reads any box of it, so that a rank reads only the
// bytes it needs, whatever wrote them. A conversion is a source over another source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/core/dtype.h"

namespace phx {

struct TensorInfo {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // global, unpadded; empty: one element
  bool operator==(const TensorInfo&) const = default;
};
using TensorInfos = std::map<std::string, TensorInfo>;
std::string describe(const TensorInfo& info);  // "BF16 [4096, 1024]"

// Along every axis: elements begin .. begin + size - 1.
struct Box {
  std::vector<int64_t> begin, size;
  int64_t numel() const;
  bool operator==(const Box&) const = default;
};
Box whole_box(const std::vector<int64_t>& shape);
// Boxes of at most `bytes` (one element at least) that are the tensor one after the other, in
// row-major order.
void for_each_slab(const TensorInfo& info, int64_t bytes, const std::function<void(const Box&)>& f);

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // By name, Megatron-Core's unless the source says otherwise.
  virtual const TensorInfos& tensors() const = 0;
  // The elements of `box`, row-major and dense, in the dtype of tensors(). Any number of threads
  // may read at once. An error names the file and the tensor.
  virtual void read(const std::string& name, const Box& box, std::span<std::byte> out) const = 0;
  // "iter_0000100 (native, 291 tensors)", for messages.
  virtual std::string description() const = 0;
};

// The safetensors name of a dtype, and back: nothing for one that no tensor of ours has.
std::string safetensors_dtype(DType dtype);
std::optional<DType> dtype_of_safetensors(std::string_view name);

// Floats of one type as those of another, each rounded once. `from` and `to` may not overlap.
void convert_floats(DType given, std::span<const std::byte> from, DType wanted,
                    std::span<std::byte> to);

}  // namespace phx
