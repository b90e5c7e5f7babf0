// Which Hugging Face tensors hold the numbers of which of ours. The names and shapes of ours come
// from the model itself (its parameters, and the biases of its experts), the rest from the family's
// table; blocks of rows say where what lies, and serve both directions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/family.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

// `count` rows from `our_row` on are those of tensor `hf` from `hf_row` on.
struct RowBlock {
  size_t hf = 0;  // index into TensorPair::hf
  int64_t our_row = 0, hf_row = 0, count = 0;
};

// One of our tensors and theirs. Rows are those of [out, in], or elements of a vector.
struct TensorPair {
  struct Theirs {
    std::string name;
    std::vector<int64_t> shape;  // as stored
  };
  std::string ours;
  std::vector<int64_t> our_shape;
  std::vector<Theirs> hf;
  std::vector<RowBlock> blocks;  // every row once, in the order of our rows
  bool transposed = false;       // theirs are stored [in, out]
  bool own_type = false;         // not converted with the weights
};

// Of the whole model, in the order of its parameters, biases of experts last. An error if the
// family has no place for one.
std::vector<TensorPair> tensor_pairs(const Family& family, const TransformerConfig& config);

// Megatron's names and global shapes of the whole model, in order.
std::vector<std::pair<std::string, std::vector<int64_t>>> model_tensors(
    const TransformerConfig& config);

}  // namespace phx
