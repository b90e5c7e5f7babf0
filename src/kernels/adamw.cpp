#include "phalanx/kernels/adamw.h"

#include "phalanx/kernels/masters.h"

namespace phx::kernels {

void adamw(const Tensor& grad, const Tensor& scalars, const AdamWOptions& options,
           const AdamWBuffers& buffers) {
  const auto& [weight, master, m, v] = buffers;
  const int64_t n = grad.numel();
  PHX_CHECK(weight.numel() == n && m.numel() == n && v.numel() == n &&
                (!master.defined() || master.numel() == n),
            "adamw: the gradient has ", n, " elements, the weight ", weight.numel(), ", m ",
            m.numel(), ", v ", v.numel(), master.defined() ? ", the master " : "",
            master.defined() ? str_cat(master.numel()) : "");
  const DType acc = acc_dtype(weight.dtype());
  const auto fits = [&](DType moment) {
    return moment == acc || (moment == DType::bf16 && acc == DType::f32);
  };
  PHX_CHECK(fits(m.dtype()) && fits(v.dtype()) && is_float(grad.dtype()) &&
                acc_dtype(grad.dtype()) == acc,
            "adamw: a weight of ", weight.dtype(), " has moments of ", acc,
            acc == DType::f32 ? " or bf16" : "", " and a gradient no wider than ", acc,
            "; they are ", m.dtype(), ", ", v.dtype(), " and ", grad.dtype());
  check_master("adamw", weight, master);
  check_step_scalars("adamw", scalars);
  if (n == 0) return;
  PHX_DISPATCH(grad.device(), adamw, grad, scalars, options, buffers);
}

}  // namespace phx::kernels
