#include "phalanx/kernels/master_split.h"

namespace phx::kernels {

namespace {

void check(const Tensor& master, const Tensor& weight, const Tensor& remainder) {
  PHX_CHECK(master.dtype() == DType::f32 && weight.dtype() == DType::bf16 &&
                remainder.dtype() == DType::u16 && master.numel() == weight.numel() &&
                master.numel() == remainder.numel(),
            "a split master is f32 = bf16 + u16 of one size, not ", master.shape(), " ",
            master.dtype(), " = ", weight.shape(), " ", weight.dtype(), " + ", remainder.shape(),
            " ", remainder.dtype());
}

}  // namespace

void split_master(const Tensor& master, Tensor& weight, Tensor& remainder) {
  check(master, weight, remainder);
  if (master.numel() == 0) return;
  PHX_DISPATCH(master.device(), split_master, master, weight, remainder);
}

void join_master(const Tensor& weight, const Tensor& remainder, Tensor& master) {
  check(master, weight, remainder);
  if (master.numel() == 0) return;
  PHX_DISPATCH(master.device(), join_master, weight, remainder, master);
}

}  // namespace phx::kernels
