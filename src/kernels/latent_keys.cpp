#include "phalanx/kernels/latent_keys.h"

namespace phx::kernels {

void latent_keys(const Tensor& up, const Tensor& shared, const LatentHeads& heads, Tensor& kv) {
  PHX_DISPATCH(up.device(), latent_keys, up, shared, heads, kv);
}

void latent_keys_backward(const Tensor& dkv, const LatentHeads& heads, Tensor& dup,
                          Tensor& dshared) {
  PHX_DISPATCH(dkv.device(), latent_keys_backward, dkv, heads, dup, dshared);
}

}  // namespace phx::kernels
