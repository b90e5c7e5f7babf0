#include "kernels/adamw.h"

#include "kernels/adamw_masters.h"
#include "kernels/cpu/loops.h"

namespace phx::kernels::cpu {

void adamw(const Tensor& grad, const Tensor& scalars, const AdamWOptions& options,
           const AdamWBuffers& buffers) {
  const double* slots = scalars.data<double>();
  if (slots[index_of(Slot::skip)] != 0) return;
  with_master(buffers, [&](const auto master) {
    using Acc = decltype(master.get(0));
    const AdamWStep<Acc> step(slots, options);
    Acc *m = buffers.m.data<Acc>(), *v = buffers.v.data<Acc>();
    for_float_dtype(grad.dtype(), [&]<class G>() {
      const G* g = grad.data<G>();
      for_elements(grad, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          Acc p = master.get(i), new_m = m[i], new_v = v[i];
          step.update(Acc(g[i]), p, new_m, new_v);
          m[i] = new_m;
          v[i] = new_v;
          master.put(i, p);
        }
      });
    });
  });
}

}  // namespace phx::kernels::cpu
