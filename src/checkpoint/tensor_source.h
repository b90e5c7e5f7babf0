// Named tensors that lie somewhere: in a native checkpoint, a Hugging Face folder, a torch_dist
// directory. A source says what it holds and reads any box of it, so that a rank reads only the
// bytes it needs, whatever wrote them. A conversion is a source over another source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace phx {

struct TensorInfo {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // global, unpadded; empty: one element
};

// Along every axis: elements begin .. begin + size - 1.
struct Box {
  std::vector<int64_t> begin, size;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // By name, Megatron-Core's unless the source says otherwise.
  virtual const std::map<std::string, TensorInfo>& tensors() const = 0;
  // The elements of `box`, row-major and dense, in the dtype of tensors(). Any number of threads may
  // read at once. An error names the file and the tensor.
  virtual void read(const std::string& name, const Box& box, std::span<std::byte> out) const = 0;
  // "iter_0000100 (native, 291 tensors)", for messages.
  virtual std::string description() const = 0;
};

}  // namespace phx
