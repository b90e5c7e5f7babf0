#include "phalanx/kernels/sgd.h"

#include "phalanx/kernels/masters.h"

namespace phx::kernels {

void sgd(const Tensor& grad, const Tensor& scalars, const SgdOptions& options,
         const SgdBuffers& buffers) {
  const auto& [weight, master, momentum] = buffers;
  const int64_t n = grad.numel();
  PHX_CHECK(weight.numel() == n && momentum.numel() == n, "sgd: the gradient has ", n,
            " elements, the weight ", weight.numel(), ", the momentum ", momentum.numel());
  const DType acc = acc_dtype(weight.dtype());
  PHX_CHECK(momentum.dtype() == acc && is_float(grad.dtype()) && acc_dtype(grad.dtype()) == acc,
            "sgd: a weight of ", weight.dtype(), " has a momentum of ", acc,
            " and a gradient no wider than it; they are ", momentum.dtype(), " and ", grad.dtype());
  check_master("sgd", weight, master);
  check_step_scalars("sgd", scalars);
  if (n == 0) return;
  PHX_DISPATCH(grad.device(), sgd, grad, scalars, options, buffers);
}

}  // namespace phx::kernels
