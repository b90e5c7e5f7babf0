// The keys and values of latent attention: a key head is its own channels without positions and,
// behind them, the channels with positions that all heads share.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct LatentHeads {
  int64_t n = 0;       // heads
  int64_t plain = 0;   // channels of a key without positions
  int64_t turned = 0;  // with positions
  int64_t value = 0;   // channels of a value
  int64_t key() const { return plain + turned; }
  int64_t up_width() const { return n * (plain + value); }
  int64_t kv_width() const { return n * (key() + value); }
};

// up [.., n (plain + value)], a head's key and value together; shared [.., turned] -> kv [..,
// n key | n value]: all keys, then all values.
PHX_KERNEL(void, latent_keys,
           (const Tensor& up, const Tensor& shared, const LatentHeads& heads, Tensor& kv))

// dshared is the sum over the heads.
PHX_KERNEL(void, latent_keys_backward,
           (const Tensor& dkv, const LatentHeads& heads, Tensor& dup, Tensor& dshared))

}  // namespace phx::kernels
