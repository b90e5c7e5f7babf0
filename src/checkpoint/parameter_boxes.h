// From a rank's flat buffers to boxes of global tensors and back. A flat buffer (weights, a moment,
// a master) holds some ranges of the store; what they cover of a parameter's pieces are boxes of
// that parameter's global tensor, and a checkpoint knows nothing else.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/nn/parameter_store.h"

namespace phx {

struct FlatState {
  std::string prefix;  // before a parameter's name: "optimizer.exp_avg."; "" for the weights
  Tensor flat;
  // The ranges of the store that `flat` holds, end to end; none: all of the store.
  std::vector<FlatRange> ranges = {};
};

// A box of a global tensor, and the rows of memory that hold it.
struct LocalBox {
  std::string name;
  TensorInfo info;  // of the global tensor
  Box box;
  Tensor flat;
  int64_t offset = 0, pitch = 0;  // of the first row, and from row to row, in elements of `flat`
  int64_t rows = 0, cols = 0;
  int64_t bytes() const { return rows * cols * size_of(info.dtype); }
};

// What `state` holds of the parameters that `picked` picks (all, if it is empty) within `ranges` of
// the store.
std::vector<LocalBox> boxes_of(const ParameterStore& store, const FlatState& state,
                               std::span<const FlatRange> ranges,
                               const std::function<bool(const Parameter&)>& picked = {});

// The part of the store that rank `rank` of `size` ranks with the same store writes: about equal
// parts, cut between rows of parameters.
FlatRange share_of(const ParameterStore& store, int rank, int size);

// Names, dtypes and global shapes of the store's parameters under the state's prefix.
TensorInfos tensors_of(const ParameterStore& store, std::span<const FlatState> states);

// One parameter's rows between local memory and the global layout, on the host.
std::vector<std::byte> to_global(const Parameter& parameter, const Tensor& local);
void from_global(const Parameter& parameter, std::span<const std::byte> global, Tensor& local);

}  // namespace phx
