#include "phalanx/ops/rope.h"

#include "phalanx/core/autograd.h"

namespace phx {

namespace {

using kernels::RopeDirection;

void check(const Tensor& x, const Tensor& table, const RopeHeads& heads, const RopePositions& at) {
  PHX_CHECK(x.rank() == 2 || x.rank() == 3, "rope: x is ", x.shape(),
            ", but should be [s, b, heads * d] or [t, heads * d]");
  PHX_CHECK(table.rank() == 3 && table.dim(1) == 2 && table.dtype() == acc_dtype(x.dtype()),
            "rope: the table is ", table.shape(), " ", table.dtype(),
            ", but should be [positions, 2, rotary_dim / 2] ", acc_dtype(x.dtype()));
  const int64_t end = heads.first + (heads.groups - 1) * heads.stride + heads.n;
  PHX_CHECK(heads.d > 0 && x.dim(-1) % heads.d == 0 && heads.first >= 0 &&
                end * heads.d <= x.dim(-1) && (heads.groups == 1 || heads.stride >= heads.n),
            "rope: heads [", heads.first, ", ", end, ") of size ", heads.d, " are not inside of ",
            x.shape());
  PHX_CHECK(heads.first_channel >= 0 && heads.first_channel + 2 * table.dim(2) <= heads.d,
            "rope: channels [", heads.first_channel, ", ", heads.first_channel + 2 * table.dim(2),
            ") turn, but a head has ", heads.d);
  if (at.positions.defined()) {
    PHX_CHECK(at.positions.dtype() == DType::i32 && at.positions.numel() == x.numel() / x.dim(-1),
              "rope: x is ", x.shape(), ", so positions should be i32 with an element a row, not ",
              at.positions.dtype(), " ", at.positions.shape());
  } else {
    PHX_CHECK(at.offset >= 0 && at.offset + x.dim(0) <= table.dim(0), "rope: positions [",
              at.offset, ", ", at.offset + x.dim(0), ") are past the table's ", table.dim(0),
              "; make a longer table");
  }
}

// Turns y, which holds x's values, and records how the gradient is turned back: where it lies, or
// in new memory.
enum class Gradient : uint8_t { overwritten, kept };
Tensor turned(Tensor y, const Tensor& x, const Tensor& table, const RopeHeads& heads,
              const RopeOptions& options, Gradient gradient) {
  kernels::rope(y, table, heads, options.pairs, options.at, RopeDirection::forward);
  return with_backward(
      y, {x}, [table = table.detach(), heads, options, gradient](const Tensor& dy, GradOut& grad) {
        PHX_CHECK(gradient == Gradient::kept || dy.sole_owner(),
                  "rope in place: somebody else still holds the gradient ", dy.shape(),
                  " that arrives; use apply_rope");
        Tensor dx = gradient == Gradient::kept ? empty_like(dy) : dy.detach();  // [.., total * d]
        if (gradient == Gradient::kept) copy(dy, dx);
        kernels::rope(dx, table, heads, options.pairs, options.at, RopeDirection::backward);
        grad.pass(0, dx);
      });
}

}  // namespace

Tensor apply_rope(const Tensor& x, const Tensor& table, const RopeHeads& heads,
                  const RopeOptions& options) {
  check(x, table, heads, options.at);
  Tensor y = empty_like(x);
  copy(x, y);
  return turned(y, x, table, heads, options, Gradient::kept);
}

Tensor apply_rope_in_place(Tensor&& x, const Tensor& table, const RopeHeads& heads,
                           const RopeOptions& options) {
  check(x, table, heads, options.at);
  PHX_CHECK(x.sole_owner(), "rope in place: somebody else still holds x ", x.shape(),
            " (its producer for its backward, or another handle); use apply_rope");
  const Tensor taken = std::move(x);
  return turned(taken.detach(), taken, table, heads, options, Gradient::overwritten);
}

}  // namespace phx
