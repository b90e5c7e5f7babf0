#include "phalanx/kernels/master_split.h"

#include <bit>

#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

void split_master(const Tensor& master, Tensor& weight, Tensor& remainder) {
  const float* from = master.data<float>();
  bf16* high = weight.data<bf16>();
  uint16_t* low = remainder.data<uint16_t>();
  for_elements(master, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SplitMaster parts = split_master_bits(std::bit_cast<uint32_t>(from[i]));
      high[i].bits = parts.weight;
      low[i] = parts.remainder;
    }
  });
}

void join_master(const Tensor& weight, const Tensor& remainder, Tensor& master) {
  const bf16* high = weight.data<bf16>();
  const uint16_t* low = remainder.data<uint16_t>();
  float* to = master.data<float>();
  for_elements(master, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = std::bit_cast<float>(join_master_bits(high[i].bits, low[i]));
  });
}

}  // namespace phx::kernels::cpu
