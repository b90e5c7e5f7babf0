#include "phalanx/kernels/latent_keys.h"

#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

void latent_keys(const Tensor& up, const Tensor& shared, const LatentHeads& heads, Tensor& kv) {
  const int64_t width = heads.kv_width();
  for_float_dtype(up.dtype(), [&]<class T>() {
    for_rows(up, kv.numel() / width, width, [&](int64_t row) {
      const T* in = up.data<T>() + row * heads.up_width();
      const T* turned = shared.data<T>() + row * heads.turned;
      T* keys = kv.data<T>() + row * width;
      T* values = keys + heads.n * heads.key();
      for (int64_t n = 0; n < heads.n; ++n) {
        keys = std::copy(in, in + heads.plain, keys);
        keys = std::copy(turned, turned + heads.turned, keys);
        in += heads.plain;
        values = std::copy(in, in + heads.value, values);
        in += heads.value;
      }
    });
  });
}

void latent_keys_backward(const Tensor& dkv, const LatentHeads& heads, Tensor& dup,
                          Tensor& dshared) {
  const int64_t width = heads.kv_width();
  for_float_dtype(dkv.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(dkv, dkv.numel() / width, width, [&](int64_t row) {
      const T* dkeys = dkv.data<T>() + row * width;
      const T* dvalues = dkeys + heads.n * heads.key();
      T* out = dup.data<T>() + row * heads.up_width();
      for (int64_t n = 0; n < heads.n; ++n) {
        out = std::copy(dkeys + n * heads.key(), dkeys + n * heads.key() + heads.plain, out);
        out = std::copy(dvalues + n * heads.value, dvalues + (n + 1) * heads.value, out);
      }
      for (int64_t i = 0; i < heads.turned; ++i) {
        Acc sum = 0;
        for (int64_t n = 0; n < heads.n; ++n) sum += Acc(dkeys[n * heads.key() + heads.plain + i]);
        dshared.data<T>()[row * heads.turned + i] = T(sum);
      }
    });
  });
}

}  // namespace phx::kernels::cpu
