// Pairs of a key and a u32 value, sorted by key; equal keys stay in their order.
#pragma once

#include <cuda_runtime.h>

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/stable_sort.h"

namespace phx::kernels::cuda {

template <class Key>
struct SortArrays {
  Key *keys, *sorted_keys;  // [n]
  uint32_t *values, *sorted_values;
  char* scratch;
  int n;
};

// Cuts a workspace of stable_sort_bytes(n, sizeof(Key)).
template <class Key>
SortArrays<Key> sort_arrays(const Tensor& workspace, int n) {
  PHX_ASSERT(workspace.bytes() >= stable_sort_bytes(n, sizeof(Key)), "a sort of ", n,
             " keys has a workspace of ", workspace.bytes(), " bytes");
  char* at = static_cast<char*>(workspace.raw());
  const auto cut = [&at, n](int64_t size) {
    char* from = at;
    at += round_up(n * size, 256);
    return from;
  };
  SortArrays<Key> arrays{.n = n};
  arrays.keys = reinterpret_cast<Key*>(cut(sizeof(Key)));
  arrays.sorted_keys = reinterpret_cast<Key*>(cut(sizeof(Key)));
  arrays.values = reinterpret_cast<uint32_t*>(cut(4));
  arrays.sorted_values = reinterpret_cast<uint32_t*>(cut(4));
  arrays.scratch = at;
  return arrays;
}

// By the lowest `bits` bits of the keys.
void sort_pairs(const SortArrays<uint32_t>& arrays, int bits, cudaStream_t stream);
void sort_pairs(const SortArrays<uint64_t>& arrays, int bits, cudaStream_t stream);

// How many bits the numbers 0 .. most have.
inline int bits_of(int64_t most) {
  int bits = 1;
  while ((most >> bits) != 0) ++bits;
  return bits;
}

}  // namespace phx::kernels::cuda
