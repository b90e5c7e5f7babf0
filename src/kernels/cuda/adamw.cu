#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/adamw.h"
#include "phalanx/kernels/masters.h"

namespace phx::kernels::cuda {

namespace {

using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::store;

constexpr int kThreads = 256;
constexpr int kWide = 4;  // 16 bytes of m and of v in f32; also the elements of a random draw

// The buffers of a master policy moved kWide elements at a time: the element's policy runs on
// registers.
template <class T>
struct OwnVector {
  OwnMaster<T> at;
  Pack<T, kWide> weight;
  __device__ void load_at(int64_t i) { weight = load<kWide>(at.weight + i); }
  __device__ void store_at(int64_t i) { store(at.weight + i, weight); }
  __device__ OwnMaster<T> local() { return {weight.at}; }
};

template <class W>
struct SeparateVector {
  SeparateMaster<W> at;
  Pack<W, kWide> weight;
  Pack<float, kWide> master;
  __device__ void load_at(int64_t i) { master = load<kWide>(at.master + i); }
  __device__ void store_at(int64_t i) {
    store(at.weight + i, weight);
    store(at.master + i, master);
  }
  __device__ SeparateMaster<W> local() { return {weight.at, master.at}; }
};

struct RemainderVector {
  RemainderMaster at;
  Pack<bf16, kWide> weight;
  Pack<uint16_t, kWide> remainder;
  __device__ void load_at(int64_t i) {
    weight = load<kWide>(at.weight + i);
    remainder = load<kWide>(at.remainder + i);
  }
  __device__ void store_at(int64_t i) {
    store(at.weight + i, weight);
    store(at.remainder + i, remainder);
  }
  __device__ RemainderMaster local() { return {weight.at, remainder.at}; }
};

template <class T>
OwnVector<T> vector_of(const OwnMaster<T>& master) {
  return {master, {}};
}
template <class W>
SeparateVector<W> vector_of(const SeparateMaster<W>& master) {
  return {master, {}, {}};
}
inline RemainderVector vector_of(const RemainderMaster& master) { return {master, {}, {}}; }

// m or v. Which of the two types it has is asked by every thread, all get the same answer: a
// template would make four kernels of each.
struct Moment {
  void* data;
  bool narrow;

  __device__ float* wide() const { return static_cast<float*>(data); }
  __device__ bf16* small() const { return static_cast<bf16*>(data); }
  __device__ float get(int64_t i) const { return narrow ? float(small()[i]) : wide()[i]; }
  __device__ void put(int64_t i, float x, uint32_t random) const {
    if (narrow)
      small()[i] = round_at_random(x, random);
    else
      wide()[i] = x;
  }
  __device__ Pack<float, kWide> load_at(int64_t i) const {
    if (!narrow) return load<kWide>(wide() + i);
    const Pack<bf16, kWide> in = load<kWide>(small() + i);
    Pack<float, kWide> out;
#pragma unroll
    for (int j = 0; j < kWide; ++j) out[j] = float(in[j]);
    return out;
  }
  // random(j): 16 bits of element i + j
  template <class Random>
  __device__ void store_at(int64_t i, const Pack<float, kWide>& x, Random&& random) const {
    if (!narrow) {
      store(wide() + i, x);
      return;
    }
    Pack<bf16, kWide> out;
#pragma unroll
    for (int j = 0; j < kWide; ++j) out[j] = round_at_random(x[j], random(j));
    store(small() + i, out);
  }
};

template <class G, class Master>
__device__ void update_one(const AdamWStep<float>& step, const G* g, const Master& master, float& m,
                           float& v, int64_t i) {
  float p = master.get(i);
  step.update(float(g[i]), p, m, v);
  master.put(i, p);
}

// A thread kWide neighbouring elements; what is left over of n, or everything if a buffer is not
// aligned, goes one by one. The step's numbers come from the device: the launch never waits.
template <class G, class Vector>
__global__ void adamw_kernel(const G* __restrict__ g, const double* __restrict__ slots,
                             AdamWOptions options, Vector vector, Moment m, Moment v, int64_t n,
                             bool aligned) {
  if (slots[int(Slot::skip)] != 0) return;
  const AdamWStep<float> step(slots, options);
  const MomentBits bits(slots, options);
  const bool draws = m.narrow || v.narrow;
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (aligned && i + kWide <= n) {
    const Pack<G, kWide> grad = load<kWide>(g + i);
    Pack<float, kWide> new_m = m.load_at(i), new_v = v.load_at(i);
    vector.load_at(i);
    const auto local = vector.local();
#pragma unroll
    for (int j = 0; j < kWide; ++j) update_one(step, grad.at, local, new_m[j], new_v[j], j);
    vector.store_at(i);
    Philox4 words = {};
    if (draws) words = bits.group((bits.first + i) / kWide);
    m.store_at(i, new_m, [&](int j) { return bits_for_m(words.x[j]); });
    v.store_at(i, new_v, [&](int j) { return bits_for_v(words.x[j]); });
  } else {
    for (int64_t j = i; j < n && j < i + kWide; ++j) {
      float new_m = m.get(j), new_v = v.get(j);
      update_one(step, g, vector.at, new_m, new_v, j);
      const uint32_t word = draws ? bits.at(j) : 0;
      m.put(j, new_m, bits_for_m(word));
      v.put(j, new_v, bits_for_v(word));
    }
  }
}

bool is_aligned(const Tensor& x) {
  return !x.defined() || reinterpret_cast<uintptr_t>(x.raw()) % (kWide * size_of(x.dtype())) == 0;
}

Moment moment_of(const Tensor& x) { return {x.raw(), x.dtype() == DType::bf16}; }

}  // namespace

void adamw(const Tensor& grad, const Tensor& scalars, const AdamWOptions& options,
           const AdamWBuffers& buffers) {
  const int64_t n = grad.numel();
  const bool aligned = is_aligned(grad) && is_aligned(buffers.weight) &&
                       is_aligned(buffers.master) && is_aligned(buffers.m) &&
                       is_aligned(buffers.v) && options.first % kWide == 0;
  auto stream = static_cast<cudaStream_t>(grad.device().compute_stream());
  with_master(buffers.weight, buffers.master, [&](const auto master) {
    if constexpr (std::is_same_v<std::remove_const_t<decltype(master)>, OwnMaster<double>>) {
      throw_error("adamw on CUDA computes in f32, not f64");
    } else {
      for_gpu_dtype(grad.dtype(), [&]<class G>() {
        adamw_kernel<<<unsigned(ceil_div(n, int64_t{kThreads} * kWide)), kThreads, 0, stream>>>(
            grad.data<G>(), scalars.data<double>(), options, vector_of(master),
            moment_of(buffers.m), moment_of(buffers.v), n, aligned);
      });
    }
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
