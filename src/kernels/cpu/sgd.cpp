#include "phalanx/kernels/sgd.h"

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/masters.h"

namespace phx::kernels::cpu {

void sgd(const Tensor& grad, const Tensor& scalars, const SgdOptions& options,
         const SgdBuffers& buffers) {
  const double* slots = scalars.data<double>();
  if (slots[index_of(Slot::skip)] != 0) return;
  with_master(buffers.weight, buffers.master, [&](const auto master) {
    using Acc = decltype(master.get(0));
    const SgdStep<Acc> step(slots, options);
    Acc* b = buffers.momentum.data<Acc>();
    for_float_dtype(grad.dtype(), [&]<class G>() {
      const G* g = grad.data<G>();
      for_elements(grad, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          Acc p = master.get(i), new_b = b[i];
          step.update(Acc(g[i]), p, new_b);
          b[i] = new_b;
          master.put(i, p);
        }
      });
    });
  });
}

}  // namespace phx::kernels::cpu
