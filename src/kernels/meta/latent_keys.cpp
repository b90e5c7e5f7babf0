#include "phalanx/kernels/latent_keys.h"

namespace phx::kernels::meta {

void latent_keys(const Tensor& up, const Tensor& shared, const LatentHeads&, Tensor& kv) {
  up.runtime().count({.flops = 0, .bytes = up.bytes() + shared.bytes() + kv.bytes()});
}

void latent_keys_backward(const Tensor& dkv, const LatentHeads& heads, Tensor& dup,
                          Tensor& dshared) {
  dkv.runtime().count(
      {.flops = dshared.numel() * heads.n, .bytes = dkv.bytes() + dup.bytes() + dshared.bytes()});
}

}  // namespace phx::kernels::meta
