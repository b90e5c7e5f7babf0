// An f32 master kept as a bf16 weight and 16 bits beside it: 4 bytes a parameter instead of 6.
//
// With the master's bits M, the weight is W = (M + 0x8000) >> 16, the nearest bf16 with ties away
// from zero, and the remainder is R = M & 0xffff. R's top bit says whether W was rounded up, so
// M = ((W - (R >> 15)) << 16) | R gives every bit back.
//
// Why not ties to even: then an even W has 65537 masters that round to it (both ties come to it),
// one more than 16 bits can tell apart. Of all masters 1 in 131072 gets another, equally near,
// weight than ties to even would give it.
//
// nan has no nearest: it becomes W with its top bits and the quiet bit, R = 0, and stays a nan.
#pragma once

#include "phalanx/core/small_float.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct SplitMaster {
  uint16_t weight;  // bf16 bits
  uint16_t remainder;
};

PHX_HD SplitMaster split_master_bits(uint32_t master) {
  const bool nan = (master & 0x7fffffffu) > 0x7f800000u;
  return {uint16_t(nan ? (master >> 16) | 0x40u : (master + 0x8000u) >> 16),
          uint16_t(nan ? 0u : master & 0xffffu)};
}

PHX_HD uint32_t join_master_bits(uint16_t weight, uint16_t remainder) {
  return ((uint32_t{weight} - (uint32_t{remainder} >> 15)) << 16) | remainder;
}

// master f32 [n] -> weight bf16 [n], remainder u16 [n], and back: for loading and saving.
PHX_KERNEL(void, split_master, (const Tensor& master, Tensor& weight, Tensor& remainder))
PHX_KERNEL(void, join_master, (const Tensor& weight, const Tensor& remainder, Tensor& master))

}  // namespace phx::kernels
