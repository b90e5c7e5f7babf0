// The three ways to keep the parameter that an update rule changes (see AdamWBuffers), as policies
// with one interface: get the master of element i, put it back. cpu and cuda share them.
#pragma once

#include "phalanx/core/step_scalars.h"
#include "phalanx/core/tensor.h"
#include "phalanx/kernels/master_split.h"

namespace phx::kernels {

template <class T>
struct OwnMaster {  // f32, f64
  T* weight;
  PHX_HD T get(int64_t i) const { return weight[i]; }
  PHX_HD void put(int64_t i, T p) const { weight[i] = p; }
};

template <class W>
struct SeparateMaster {  // bf16, f16
  W* weight;
  float* master;
  PHX_HD float get(int64_t i) const { return master[i]; }
  PHX_HD void put(int64_t i, float p) const {
    master[i] = p;
    weight[i] = W(p);
  }
};

struct RemainderMaster {
  bf16* weight;
  uint16_t* remainder;
  PHX_HD float get(int64_t i) const {
    return phx::detail::bits_float(join_master_bits(weight[i].bits, remainder[i]));
  }
  PHX_HD void put(int64_t i, float p) const {
    const SplitMaster parts = split_master_bits(phx::detail::float_bits(p));
    weight[i].bits = parts.weight;
    remainder[i] = parts.remainder;
  }
};

// What the kernels of update rules check of their arguments; `who` is the kernel's name.
void check_master(const char* who, const Tensor& weight, const Tensor& master);
void check_step_scalars(const char* who, const Tensor& scalars);

// Calls f with the policy that fits the buffers, which check_master has passed.
template <class F>
void with_master(const Tensor& weight, const Tensor& master, F&& f) {
  if (!master.defined()) {
    if (weight.dtype() == DType::f64)
      f(OwnMaster<double>{weight.data<double>()});
    else
      f(OwnMaster<float>{weight.data<float>()});
  } else if (master.dtype() == DType::u16) {
    f(RemainderMaster{weight.data<bf16>(), master.data<uint16_t>()});
  } else if (weight.dtype() == DType::bf16) {
    f(SeparateMaster<bf16>{weight.data<bf16>(), master.data<float>()});
  } else {
    f(SeparateMaster<f16>{weight.data<f16>(), master.data<float>()});
  }
}

}  // namespace phx::kernels
