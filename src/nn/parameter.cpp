#include "phalanx/nn/parameter.h"

#include <algorithm>
#include <utility>

#include "phalanx/core/philox.h"
#include "phalanx/kernels/random_fill.h"

namespace phx {

// The end of the graph at a parameter.
class ParameterLeaf : public Node {
 public:
  ParameterLeaf(Runtime& runtime, Parameter& parameter, BackwardReads reads)
      : Node(runtime), parameter_(parameter), reads_(reads) {}
  bool is_leaf() const override { return true; }
  Sink leaf_sink() override {
    if (parameter_.door_ != nullptr) parameter_.door_->open_gradient(parameter_.index_);
    return {parameter_.gradient_, std::exchange(parameter_.touched_, true) ? 1.f : 0.f};
  }
  void leaf_done() override {
    if (parameter_.door_ != nullptr) parameter_.door_->use_done(parameter_.index_);
  }
  void leaf_acquire() override {
    if (reads_weight()) parameter_.door_->acquire(parameter_.index_, WeightUse::backward);
  }
  void leaf_release() override {
    if (reads_weight()) parameter_.door_->release(parameter_.index_);
  }

 private:
  bool reads_weight() const {
    return parameter_.door_ != nullptr && reads_ == BackwardReads::weight;
  }

  Parameter& parameter_;
  BackwardReads reads_;
};

std::vector<Piece> pieces_of(const std::vector<RowPiece>& rows, int64_t cols) {
  std::vector<Piece> pieces;
  for (const RowPiece& row : rows)
    pieces.push_back({.rows = row.count,
                      .cols = cols,
                      .global_row = row.global_row,
                      .local_row = row.local_row});
  return pieces;
}

ParameterSpec whole(const Shape& shape, Init init, int64_t local_rows) {
  const int64_t rows = shape[0], cols = shape.rank() == 2 ? shape[1] : 1;
  Shape local = shape;
  if (local_rows > 0) local.set(0, local_rows);
  return {.global_shape = shape,
          .local_shape = local,
          .pieces = {{.rows = rows, .cols = cols}},
          .init = init};
}

Parameter::Parameter(ParameterSpec spec) : spec_(std::move(spec)) {
  PHX_CHECK(spec_.global_shape.rank() == 1 || spec_.global_shape.rank() == 2,
            "a parameter is a vector or a matrix, not ", spec_.global_shape);
  for (const Piece& piece : spec_.pieces)
    PHX_ASSERT(piece.local_row + piece.rows <= spec_.local_shape[0] &&
                   piece.local_col + piece.cols <= local_columns() &&
                   piece.global_row + piece.rows <= spec_.global_shape[0] &&
                   piece.global_col + piece.cols <= columns(),
               "a piece reaches outside of its parameter");
}

int64_t Parameter::columns() const {
  return spec_.global_shape.rank() == 2 ? spec_.global_shape[1] : 1;
}

int64_t Parameter::local_columns() const {
  return spec_.local_shape.rank() == 2 ? spec_.local_shape[1] : 1;
}

void Parameter::attach(Tensor value, Tensor gradient) {
  value_ = std::move(value);
  gradient_ = std::move(gradient);
  const auto leaf = [this](BackwardReads reads) {
    return gradient_.defined() ? std::make_shared<ParameterLeaf>(value_.runtime(), *this, reads)
                               : nullptr;
  };
  leaf_ = leaf(BackwardReads::weight);
  gradient_leaf_ = leaf(BackwardReads::nothing);
}

Held Parameter::acquire(BackwardReads backward) {
  PHX_ASSERT(value_.defined(), "parameter ", name_, " has no memory yet");
  if (door_ != nullptr) door_->acquire(index_, WeightUse::forward);
  Tensor tensor = value_;
  if (leaf_) tensor.set_node(backward == BackwardReads::weight ? leaf_ : gradient_leaf_, 0);
  return Held(*this, std::move(tensor));
}

Held::~Held() {
  if (parameter_->door_ != nullptr) parameter_->door_->release(parameter_->index_);
}

void Parameter::finish_step() {
  if (!touched_ && gradient_.defined()) set_zero(gradient_);
}

namespace {

// Rows x columns of this rank's matrix that lie end to end in memory: whole rows, or a part of one.
struct Run {
  int64_t row = 0, rows = 0, col = 0, cols = 0;
};

// Elements [first, first + count) of a matrix: a part of a row, whole rows, a part of a row.
std::vector<Run> runs_of(int64_t first, int64_t count, int64_t width) {
  std::vector<Run> runs;
  while (count > 0) {
    const int64_t row = first / width, col = first % width;
    const bool whole = col == 0 && count >= width;
    const Run run{.row = row,
                  .rows = whole ? count / width : 1,
                  .col = col,
                  .cols = whole ? width : std::min(width - col, count)};
    runs.push_back(run);
    first += run.rows * run.cols;
    count -= run.rows * run.cols;
  }
  return runs;
}

}  // namespace

void Parameter::initialize(uint64_t seed, Tensor memory, int64_t first) const {
  set_zero(memory);
  if (spec_.init.kind == Init::Kind::constant && spec_.init.value == 0) return;
  int64_t at = 0;
  for (const Run& run : runs_of(first, memory.numel(), local_columns())) {
    Tensor matrix = memory.rows(at, run.rows * run.cols).reshape({run.rows, run.cols});
    at += run.rows * run.cols;
    for (const Piece& piece : spec_.pieces) {
      const int64_t row = std::max(run.row, piece.local_row);
      const int64_t col = std::max(run.col, piece.local_col);
      const int64_t rows = std::min(run.row + run.rows, piece.local_row + piece.rows) - row;
      const int64_t cols = std::min(run.col + run.cols, piece.local_col + piece.cols) - col;
      if (rows <= 0 || cols <= 0) continue;
      const kernels::FillBox box{.row = row - run.row,
                                 .rows = rows,
                                 .col = col - run.col,
                                 .cols = cols,
                                 .global_row = piece.global_row + row - piece.local_row,
                                 .global_col = piece.global_col + col - piece.local_col};
      if (spec_.init.kind == Init::Kind::normal) {
        kernels::fill_normal(matrix, box,
                             {.seed = seed, .site = site_of(name_), .std = spec_.init.value});
      } else {
        kernels::fill_constant(matrix, box, spec_.init.value);
      }
    }
  }
}

}  // namespace phx
