// A parameter, which knows its global self: its name (Megatron-Core's, with the global layer
// index), its unpadded global shape, and which pieces of it lie where in this rank's memory.
// Checkpoints, resharding, conversion, the optimizer and the planner all read this one description.
//
// A weight is reached only through acquire(), its gradient only through the graph (Sink) and
// gradient(): plain data parallelism, ZeRO and FSDP differ behind that door alone
// (nn/weight_door.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "phalanx/core/autograd.h"
#include "phalanx/core/tensor.h"
#include "phalanx/nn/axes.h"
#include "phalanx/nn/weight_door.h"

namespace phx {

// A parameter as rows x columns; one-dimensional ones have a single column. A box of it lies at
// (global_row, global_col) of the global matrix and at (local_row, local_col) of this rank's.
struct Piece {
  int64_t rows = 0, cols = 0;
  int64_t global_row = 0, global_col = 0;
  int64_t local_row = 0, local_col = 0;
};

// Whole rows only: `count` of them from global row `global_row` lie at local row `local_row`.
struct RowPiece {
  int64_t global_row = 0;
  int64_t local_row = 0;
  int64_t count = 0;
};
std::vector<Piece> pieces_of(const std::vector<RowPiece>& rows, int64_t cols);

struct Init {
  enum class Kind { normal, constant } kind = Kind::constant;
  double value = 0;  // the standard deviation, or the constant
  static Init normal(double std) { return {Kind::normal, std}; }
  static Init constant(double value) { return {Kind::constant, value}; }
};

struct ParameterSpec {
  Shape global_shape;         // [rows, cols] or [rows], without padding
  Shape local_shape;          // with padding
  std::vector<Piece> pieces;  // every global element that this rank holds, once
  Init init;
  ParameterAxes axes = {};  // cut over which ranks, repeated over which
};

// All of it, where it is; `local_rows` may be larger (zero rows at the end).
ParameterSpec whole(const Shape& shape, Init init, int64_t local_rows = 0);

class Parameter;

// Holds a weight while a forward uses it.
class Held {
 public:
  Held(Parameter& parameter, Tensor tensor) : parameter_(&parameter), tensor_(std::move(tensor)) {}
  ~Held();
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  operator const Tensor&() const { return tensor_; }

 private:
  Parameter* parameter_;
  Tensor tensor_;
};

class Parameter {
 public:
  explicit Parameter(ParameterSpec spec);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const { return name_; }
  const ParameterSpec& spec() const { return spec_; }
  const Shape& local_shape() const { return spec_.local_shape; }
  int64_t columns() const;        // of the global matrix
  int64_t local_columns() const;  // of this rank's
  // Matrices decay; biases and norms, which are vectors, do not, unless told to.
  bool decays() const { return spec_.global_shape.rank() >= 2 || decays_; }
  void set_decays() { decays_ = true; }

  const ParameterAxes& axes() const { return spec_.axes; }

  // The weight for an op, attached to the graph. Released when the Held goes out of scope; backward
  // functions get it acquired by the graph walk, unless `backward` says that they only write its
  // gradient.
  Held acquire(BackwardReads backward = BackwardReads::weight);

  const Tensor& value() const { return value_; }  // local, in the model's dtype
  const Tensor& gradient() const {
    return gradient_;
  }  // local, in acc_dtype: a plain sum over tokens

  // A step begins: the first gradient of this step overwrites, the next ones add.
  void begin_step() { touched_ = false; }
  // After the last backward of a step: a parameter that nothing used has gradient zero.
  void finish_step();
  // Who is told of every use; null: nobody. `index` is this parameter's in its store.
  void set_door(WeightDoor* door, size_t index) { door_ = door, index_ = index; }

  void set_name(std::string name) { name_ = std::move(name); }
  void attach(Tensor value, Tensor gradient);  // the store's memory
  // `memory` [count]: what this rank holds from local element `first` on, row by row. Global
  // elements by Philox, keyed by name and global index: the same weights under every layout.
  void initialize(uint64_t seed, Tensor memory, int64_t first) const;

 private:
  friend class Held;
  friend class ParameterLeaf;
  ParameterSpec spec_;
  std::string name_;
  Tensor value_, gradient_;
  std::shared_ptr<Node> leaf_, gradient_leaf_;  // the latter of uses that read no weight later
  WeightDoor* door_ = nullptr;
  size_t index_ = 0;
  bool touched_ = false;
  bool decays_ = false;
};

}  // namespace phx
