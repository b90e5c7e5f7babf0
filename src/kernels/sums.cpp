#include "phalanx/kernels/sums.h"

#include "phalanx/kernels/row_blocks.h"

namespace phx::kernels {

namespace {

int64_t num_flat_blocks(int64_t n, DeviceKind target) {
  // cpu: 64 Ki elements, a piece of the second cache; cuda: at most eight blocks a multiprocessor.
  if (target == DeviceKind::cuda) return std::clamp<int64_t>(ceil_div(n, 4096), 1, 1056);
  return std::max<int64_t>(ceil_div(n, 1 << 16), 1);
}

void sum_terms(const Tensor& x, Term term, const Tensor& workspace, const Sink& total) {
  PHX_CHECK(total.tensor.numel() == 1, "sum: the total should be [1], but it is ",
            total.tensor.shape());
  const int64_t blocks = num_flat_blocks(x.numel(), x.device().target());
  PHX_CHECK(workspace.numel() >= blocks, "sum: ", x.numel(), " elements are added in ", blocks,
            " blocks, but the workspace is for ", workspace.numel());
  Tensor parts = workspace.rows(0, blocks);
  sum_all(x, term, parts, total);
}

}  // namespace

void column_sums(const Tensor& x, const Sink& sums) {
  PHX_CHECK(x.rank() >= 1 && sums.tensor.shape() == Shape({x.dim(-1)}), "column_sums: x is ",
            x.shape(), ", so the sums should be [", x.rank() ? x.dim(-1) : 0, "], but they are ",
            sums.tensor.shape());
  const int64_t n = x.dim(-1);
  if (n == 0) return;
  Tensor workspace = empty({num_row_blocks(x.numel() / n, x.device().target()), n},
                           acc_dtype(x.dtype()), x.device(), Purpose::workspace);
  column_sums(x, workspace, sums);
}

void column_sums(const Tensor& x, Tensor& workspace, const Sink& sums) {
  PHX_DISPATCH(x.device(), column_sums, x, workspace, sums);
}

Tensor sum_workspace(int64_t elements, Device device) {
  return empty({num_flat_blocks(elements, device.target())}, DType::f64, device,
               Purpose::workspace);
}

void sum(const Tensor& x, const Sink& total) {
  sum_terms(x, Term::value, sum_workspace(x.numel(), x.device()), total);
}
void sum_of_squares(const Tensor& x, const Sink& total) {
  sum_of_squares(x, sum_workspace(x.numel(), x.device()), total);
}
void sum_of_squares(const Tensor& x, const Tensor& workspace, const Sink& total) {
  sum_terms(x, Term::square, workspace, total);
}

void sum_all(const Tensor& x, Term term, Tensor& workspace, const Sink& total) {
  PHX_DISPATCH(x.device(), sum_all, x, term, workspace, total);
}

}  // namespace phx::kernels
