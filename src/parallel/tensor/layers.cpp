#include "phalanx/parallel/tensor/layers.h"

#include <algorithm>

#include "phalanx/ops/embedding.h"

namespace phx {

namespace {

ParameterSpec rows_spec(const RowCut& cut, int64_t cols, const Shape& global, Init init) {
  Shape local = global;
  local.set(0, cut.local_rows);
  return {.global_shape = global,
          .local_shape = local,
          .pieces = pieces_of(cut.pieces, cols),
          .init = init,
          .axes = cut_over_tp()};
}

ParameterSpec columns_spec(int64_t out, int64_t in, Init init, const TensorParallel& tp) {
  PHX_CHECK(in % tp.size() == 0, "a row-parallel layer of ", in, " inputs cannot be cut over ",
            tp.size(), " ranks");
  const int64_t part = tp.part(in);
  return {.global_shape = {out, in},
          .local_shape = {out, part},
          .pieces = {{.rows = out, .cols = part, .global_col = tp.first(in)}},
          .init = init,
          .axes = cut_over_tp()};
}

ParameterSpec vector_on_every_rank(int64_t out, const ParameterAxes& axes) {
  ParameterSpec spec = whole({out}, Init::constant(0));
  spec.axes = axes;
  return spec;
}

ParameterSpec vocab_spec(int64_t rows, int64_t width, Init init, int64_t padded,
                         const TensorParallel& tp, const ParameterAxes& axes) {
  PHX_CHECK(padded % tp.size() == 0, "a vocabulary padded to ", padded, " rows cannot be cut over ",
            tp.size(), " ranks");
  const int64_t first = tp.first(padded), part = tp.part(padded);
  const int64_t here = std::clamp<int64_t>(rows - first, 0, part);
  ParameterSpec spec{.global_shape = {rows, width},
                     .local_shape = {part, width},
                     .pieces = {},
                     .init = init,
                     .axes = axes};
  if (here > 0) spec.pieces = {{.rows = here, .cols = width, .global_row = first}};
  return spec;
}

}  // namespace

RowCut cut_rows(const std::vector<int64_t>& parts, const TensorParallel& tp) {
  RowCut cut;
  for (const int64_t rows : parts) {
    PHX_CHECK(rows % tp.size() == 0, "a column-parallel layer of ", rows,
              " outputs cannot be cut over ", tp.size(), " ranks");
    cut.pieces.push_back({.global_row = cut.global_rows + tp.first(rows),
                          .local_row = cut.local_rows,
                          .count = tp.part(rows)});
    cut.global_rows += rows;
    cut.local_rows += tp.part(rows);
  }
  return cut;
}

ColumnLinear::ColumnLinear(int64_t in, const RowCut& out, const LinearOptions& options,
                           const TensorParallel& tp)
    : tp_(tp), weight_(rows_spec(out, in, {out.global_rows, in}, options.init)) {
  add_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(rows_spec(out, 1, {out.global_rows}, Init::constant(0)));
  add_parameter("bias", *bias_);
}

Tensor ColumnLinear::forward(const Tensor& x, const Remake& remake) {
  if (!bias_) return column_linear(x, weight_.acquire(), Tensor(), tp_, remake);
  return column_linear(x, weight_.acquire(), bias_->acquire(), tp_, remake);
}

RowLinear::RowLinear(int64_t in, int64_t out, const LinearOptions& options,
                     const TensorParallel& tp)
    : tp_(tp), weight_(columns_spec(out, in, options.init, tp)) {
  add_parameter("weight", weight_);
  if (!options.bias) return;
  bias_.emplace(vector_on_every_rank(out, axes_in_sequence(tp)));
  add_parameter("bias", *bias_);
}

Tensor RowLinear::multiply_onto(const Tensor& residual, const Tensor& x, const Remake& remake) {
  PHX_ASSERT(tp_.size() == 1, "a sum over ranks comes before the residual");
  return linear_onto(residual, x, weight_.acquire(), remake);
}

Tensor RowLinear::multiply(const Tensor& x, const Remake& remake) {
  return row_linear(x, weight_.acquire(), tp_, remake);
}

VocabTable::VocabTable(int64_t rows, int64_t width, Init init, int64_t padded,
                       const TensorParallel& tp, const ParameterAxes& axes)
    : tp_(tp),
      padded_(padded),
      first_row_(tp.first(padded)),
      weight_(vocab_spec(rows, width, init, padded, tp, axes)) {
  add_parameter("weight", weight_);
}

Tensor VocabTable::forward(const Tensor& ids, double scale) {  // [s, b]
  if (tp_.size() == 1)
    return embedding(weight_.acquire(BackwardReads::nothing), ids, {.scale = scale});
  return leave_region(embedding(weight_.acquire(BackwardReads::nothing), ids,
                                {.scale = scale, .first_row = first_row_, .vocabulary = padded_}),
                      tp_);
}

}  // namespace phx
