// Layers that are cut over the tensor-parallel ranks. Initial weights are drawn by global indices,
// so they do not depend on how many ranks there are.
#pragma once

#include <optional>

#include "phalanx/nn/module.h"
#include "phalanx/parallel/tensor/linear_ops.h"

namespace phx {

struct LinearOptions {
  bool bias = true;
  Init init = Init::normal(0.02);
};

// How the output rows of a matrix are cut. The layer's owner decides: QKV is cut by groups, a gated
// fc1 in two halves.
struct RowCut {
  int64_t global_rows = 0, local_rows = 0;
  std::vector<RowPiece> pieces;
};
// `parts` one after the other, each of them cut evenly: Parts{f, f} of a gated fc1.
RowCut cut_rows(const std::vector<int64_t>& parts, const TensorParallel& tp);

class ColumnLinear : public Module {
 public:
  ColumnLinear(int64_t in, const RowCut& out, const LinearOptions& options,
               const TensorParallel& tp);
  Tensor forward(const Tensor& x, const Remake& remake = {});  // [s/tp, b, in] -> [s, b, out/tp]

 private:
  TensorParallel tp_;
  Parameter weight_;               // [out/tp, in]
  std::optional<Parameter> bias_;  // [out/tp]
};

// Input columns are cut.
class RowLinear : public Module {
 public:
  RowLinear(int64_t in, int64_t out, const LinearOptions& options, const TensorParallel& tp);
  // x W^T without the bias: the caller adds it with the residual. [s, b, in/tp] -> [s/tp, b, out]
  Tensor multiply(const Tensor& x, const Remake& remake = {});
  // residual + multiply(x). For one rank only: several would have to sum in between.
  Tensor multiply_onto(const Tensor& residual, const Tensor& x, const Remake& remake = {});
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }
  const TensorParallel& tp() const { return tp_; }

 private:
  TensorParallel tp_;
  Parameter weight_;               // [out, in/tp]
  std::optional<Parameter> bias_;  // [out], on every rank
};

// The word embedding, and an LM head's weight: rows of the vocabulary are cut. `padded` rows are a
// multiple of the ranks; those past `rows` are zero and belong to no word.
class VocabTable : public Module {
 public:
  VocabTable(int64_t rows, int64_t width, Init init, int64_t padded, const TensorParallel& tp,
             const ParameterAxes& axes = cut_over_tp());

  Tensor forward(const Tensor& ids, double scale);  // [s, b] -> [s/tp or s, b, width]
  Parameter& weight() { return weight_; }           // [padded/tp, width]
  int64_t first_row() const { return first_row_; }

 private:
  TensorParallel tp_;
  int64_t padded_, first_row_;
  Parameter weight_;
};

// The axes of a parameter that every tensor-parallel rank has whole and uses on [s/tp or s, b, h].
inline ParameterAxes axes_in_sequence(const TensorParallel& tp) {
  return tp.sequence ? partial_over_tp() : same_over_tp();
}

}  // namespace phx
