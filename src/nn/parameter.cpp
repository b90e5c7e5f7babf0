#include "phalanx/nn/parameter.h"

#include <utility>

#include "phalanx/core/philox.h"
#include "phalanx/kernels/random_fill.h"

namespace phx {

// The end of the graph at a parameter.
class ParameterLeaf : public Node {
 public:
  ParameterLeaf(Runtime& runtime, Parameter& parameter) : Node(runtime), parameter_(parameter) {}
  bool is_leaf() const override { return true; }
  Sink leaf_sink() override {
    return {parameter_.gradient_, std::exchange(parameter_.touched_, true) ? 1.f : 0.f};
  }
  void leaf_done() override {
    if (parameter_.use_done_) parameter_.use_done_(parameter_);
  }

 private:
  Parameter& parameter_;
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
  leaf_ = gradient_.defined() ? std::make_shared<ParameterLeaf>(value_.runtime(), *this) : nullptr;
}

Held Parameter::acquire() {
  PHX_ASSERT(value_.defined(), "parameter ", name_, " has no memory yet");
  if (before_use_) before_use_();
  Tensor tensor = value_;
  if (leaf_) tensor.set_node(leaf_, 0);
  return Held(*this, std::move(tensor));
}

Held::~Held() = default;  // whole weights are always there; sharded ones are let go here

void Parameter::finish_step() {
  if (!touched_ && gradient_.defined()) set_zero(gradient_);
}

void Parameter::initialize(uint64_t seed) {
  set_zero(value_);
  if (spec_.init.kind == Init::Kind::constant && spec_.init.value == 0) return;
  Tensor matrix = value_.reshape({spec_.local_shape[0], local_columns()});
  for (const Piece& piece : spec_.pieces) {
    const kernels::FillBox box{.row = piece.local_row,
                               .rows = piece.rows,
                               .col = piece.local_col,
                               .cols = piece.cols,
                               .global_row = piece.global_row,
                               .global_col = piece.global_col};
    if (spec_.init.kind == Init::Kind::normal) {
      kernels::fill_normal(matrix, box,
                           {.seed = seed, .site = site_of(name_), .std = spec_.init.value});
    } else {
      kernels::fill_constant(matrix, box, spec_.init.value);
    }
  }
}

}  // namespace phx
