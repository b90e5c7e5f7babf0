// A small store for tests of checkpoints: matrices cut by rows in two halves, by columns, with
// padding; a vector. Filled with numbers that depend on name, place and a key only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/nn/module.h"

namespace phx::testing {

// Rank `rank` of `size` tensor-parallel ranks.
class CutModel : public Module {
 public:
  CutModel(int rank, int size)
      : gated_({.global_shape = {16, 6},
                .local_shape = {16 / size, 6},
                .pieces = pieces_of(
                    {{rank * 8 / size, 0, 8 / size}, {8 + rank * 8 / size, 8 / size, 8 / size}}, 6),
                .init = Init::normal(1)}),
        columns_({.global_shape = {5, 8},
                  .local_shape = {5, 8 / size},
                  .pieces = {{.rows = 5, .cols = 8 / size, .global_col = rank * 8 / size}},
                  .init = Init::normal(1)}),
        table_(table(rank, size)),
        vector_(whole({7}, Init::normal(1))) {
    add_parameter("gated.weight", gated_);
    add_parameter("columns.weight", columns_);
    add_parameter("table.weight", table_);
    add_parameter("vector.bias", vector_);
  }

 private:
  // 11 rows, padded to 12.
  static ParameterSpec table(int rank, int size) {
    const int64_t part = 12 / size, first = rank * part;
    const int64_t here = std::min<int64_t>(11 - first, part);
    return {.global_shape = {11, 4},
            .local_shape = {part, 4},
            .pieces = pieces_of({{first, 0, here}}, 4),
            .init = Init::normal(1)};
  }

  Parameter gated_, columns_, table_, vector_;
};

struct CutStore {
  CutStore(Device device, uint64_t seed, int rank = 0, int size = 1, StoreOptions options = {})
      : model(rank, size), store(model, device, with_seed(options, seed)) {}
  std::vector<FlatState> states() { return {{"", store.weights()}}; }

  static StoreOptions with_seed(StoreOptions options, uint64_t seed) {
    options.seed = seed;
    options.gradients = false;
    return options;
  }
  CutModel model;
  ParameterStore store;
};

// Every tensor's bytes.
inline std::map<std::string, std::vector<std::byte>> all_bytes(const TensorSource& source) {
  std::map<std::string, std::vector<std::byte>> bytes;
  for (const auto& [name, info] : source.tensors()) {
    const Box box = whole_box(info.shape);
    bytes[name].resize(size_t(box.numel() * size_of(info.dtype)));
    source.read(name, box, bytes[name]);
  }
  return bytes;
}

}  // namespace phx::testing
