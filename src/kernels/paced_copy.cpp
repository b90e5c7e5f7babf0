#include "phalanx/kernels/paced_copy.h"

#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

void paced_copy(const Tensor& from, const Tensor& to, double seconds, Stream stream) {
  PHX_CHECK(to.bytes() == 0 || from.bytes() > 0, "paced_copy: nothing is there to fill ",
            to.bytes(), " bytes with");
  PHX_CHECK(seconds >= 0, "paced_copy: ", seconds, " s are less than no time");
  switch (to.device().kind()) {
    case DeviceKind::cpu:
      return cpu::paced_copy(from, to, seconds);
    case DeviceKind::meta:
      return;
    case DeviceKind::cuda:
      PHX_DISPATCH_CUDA(paced_copy, from, to, seconds, stream);
  }
}

}  // namespace phx::kernels
