#include "phalanx/ops/latent_keys.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor latent_keys(const Tensor& up, const Tensor& shared, const LatentHeads& heads) {
  PHX_CHECK(up.dim(-1) == heads.up_width() && shared.shape() == up.shape().with_last(heads.turned),
            "latent_keys: with ", heads.n, " heads of ", heads.plain, " + ", heads.turned, " and ",
            heads.value, " channels up and shared should be [.., ", heads.up_width(), "] and [.., ",
            heads.turned, "], but they are ", up.shape(), " and ", shared.shape());
  Tensor kv = empty(up.shape().with_last(heads.kv_width()), up.dtype(), up.device());
  kernels::latent_keys(up, shared, heads, kv);
  return with_backward(kv, {up, shared}, [heads](const Tensor& dkv, GradOut& grad) {
    kernels::latent_keys_backward(dkv, heads, grad.out(0), grad.out(1));
  });
}

}  // namespace phx
