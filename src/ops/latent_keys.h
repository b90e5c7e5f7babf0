// Keys and values of latent attention out of the up-projection and the channels with positions.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/latent_keys.h"

namespace phx {

using kernels::LatentHeads;

// up [s, b, n (plain + value)], shared [s, b, turned] -> [s, b, n key | n value]
Tensor latent_keys(const Tensor& up, const Tensor& shared, const LatentHeads& heads);

}  // namespace phx
