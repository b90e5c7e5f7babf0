#include "phalanx/kernels/masters.h"

#include "phalanx/base/error.h"

namespace phx::kernels {

void check_master(const char* who, const Tensor& weight, const Tensor& master) {
  PHX_CHECK(!master.defined() || master.numel() == weight.numel(), who, ": the weight has ",
            weight.numel(), " elements, the master ", master.defined() ? master.numel() : 0);
  const bool own = !master.defined() && weight.dtype() == acc_dtype(weight.dtype());
  const bool separate =
      master.defined() && master.dtype() == DType::f32 && size_of(weight.dtype()) == 2;
  const bool split =
      master.defined() && master.dtype() == DType::u16 && weight.dtype() == DType::bf16;
  PHX_CHECK(own || separate || split, who, ": a weight of ", weight.dtype(), " with ",
            master.defined() ? str_cat("a master of ", master.dtype()) : "no master",
            "; it is f32 or f64 with none, bf16 or f16 with f32, or bf16 with u16");
}

void check_step_scalars(const char* who, const Tensor& scalars) {
  PHX_CHECK(scalars.shape() == Shape({kNumSlots}) && scalars.dtype() == DType::f64, who,
            ": the step's scalars should be [", kNumSlots, "] of f64, but they are ",
            scalars.shape(), " of ", scalars.dtype());
}

}  // namespace phx::kernels
