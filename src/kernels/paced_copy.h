// A copy that takes its time: what a transfer between ranks does to this rank, without the other
// ranks (plan/rehearsal_world.h).
#pragma once

#include "phalanx/core/tensor.h"

namespace phx::kernels {

// `to` becomes the bytes of `from`, again and again from the beginning until it is full, and the
// stream goes on `seconds` later, or when the bytes are there. On a GPU it occupies as many
// multiprocessors as NCCL would. `from` may be a part of `to`.
void paced_copy(const Tensor& from, const Tensor& to, double seconds, Stream stream);

namespace cpu {
void paced_copy(const Tensor& from, const Tensor& to, double seconds);
}
namespace cuda {
void paced_copy(const Tensor& from, const Tensor& to, double seconds, Stream stream);
}

}  // namespace phx::kernels
