#include "nn/parameter.h"

#include <utility>

#include "core/philox.h"
#include "kernels/random_fill.h"

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

ParameterSpec whole(const Shape& shape, Init init, int64_t local_rows) {
  const int64_t rows = shape[0];
  return {.global_shape = shape,
          .local_rows = local_rows > 0 ? local_rows : rows,
          .pieces = {{.global_row = 0, .local_row = 0, .count = rows}},
          .init = init};
}

Parameter::Parameter(ParameterSpec spec) : spec_(std::move(spec)) {
  PHX_CHECK(spec_.global_shape.rank() == 1 || spec_.global_shape.rank() == 2,
            "a parameter is a vector or a matrix, not ", spec_.global_shape);
  for (const RowPiece& piece : spec_.pieces)
    PHX_ASSERT(piece.local_row + piece.count <= spec_.local_rows &&
                   piece.global_row + piece.count <= spec_.global_shape[0],
               "a piece reaches outside of its parameter");
}

Shape Parameter::local_shape() const {
  Shape shape = spec_.global_shape;
  shape.set(0, spec_.local_rows);
  return shape;
}

int64_t Parameter::columns() const {
  return spec_.global_shape.rank() == 2 ? spec_.global_shape[1] : 1;
}

void Parameter::attach(Tensor value, Tensor gradient) {
  value_ = std::move(value);
  gradient_ = std::move(gradient);
  leaf_ = gradient_.defined() ? std::make_shared<ParameterLeaf>(value_.runtime(), *this) : nullptr;
}

Held Parameter::acquire() {
  PHX_ASSERT(value_.defined(), "parameter ", name_, " has no memory yet");
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
  Tensor matrix = value_.reshape({spec_.local_rows, columns()});
  for (const RowPiece& piece : spec_.pieces) {
    const kernels::FillBox box{.row = piece.local_row,
                               .rows = piece.count,
                               .cols = columns(),
                               .global_row = piece.global_row};
    if (spec_.init.kind == Init::Kind::normal) {
      kernels::fill_normal(matrix, box,
                           {.seed = seed, .site = site_of(name_), .std = spec_.init.value});
    } else {
      kernels::fill_constant(matrix, box, spec_.init.value);
    }
  }
}

}  // namespace phx
