// Vector loads and stores: kWide elements at once, 16 bytes where the type allows.
#pragma once

#include <cstdint>

#include "core/small_float.h"

namespace phx::cuda {

template <class T, int kWide>
struct alignas(sizeof(T) * kWide <= 16 ? sizeof(T) * kWide : 16) Pack {
  T at[kWide];
  __device__ __forceinline__ T& operator[](int i) { return at[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return at[i]; }
};

template <int kWide, class T>
__device__ __forceinline__ Pack<T, kWide> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWide>*>(from);
}

template <class T, int kWide>
__device__ __forceinline__ void store(T* to, const Pack<T, kWide>& values) {
  *reinterpret_cast<Pack<T, kWide>*>(to) = values;
}

}  // namespace phx::cuda
