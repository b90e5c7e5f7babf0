#include "phalanx/kernels/activation.h"

#include "phalanx/kernels/activation_math.h"
#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/cpu/vector_math.h"

namespace phx::kernels::cpu {

namespace {

struct CpuMath {
  template <class T>
  static T exp(T x) {
    return fast_exp(x);
  }
  template <class T>
  static T erf(T x) {
    return fast_erf(x);
  }
  template <class T>
  static T sigmoid(T x) {
    return cpu::sigmoid(x);
  }
};

// f<T, kind>() for the tensor's type and the activation.
template <class F>
void for_types(const Tensor& x, Activation kind, F&& f) {
  for_float_dtype(x.dtype(), [&]<class T>() {
    for_activation(kind, [&]<Activation kKind>() { f.template operator()<T, kKind>(); });
  });
}

}  // namespace

void activate(const Tensor& x, Activation kind, Tensor& y) {
  for_types(x, kind, [&]<class T, Activation kKind>() {
    using Acc = acc_t<T>;
    const T* in = x.data<T>();
    T* out = y.data<T>();
    for_elements(x, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i)
        out[i] = T(activation_at<kKind, CpuMath>(Acc(in[i])).value);
    });
  });
}

void activate_backward(const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx) {
  for_types(x, kind, [&]<class T, Activation kKind>() {
    using Acc = acc_t<T>;
    const T *in = x.data<T>(), *d = dy.data<T>();
    T* out = dx.tensor.data<T>();
    const bool keep = dx.beta != 0.f;
    for_elements(x, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const Acc value = Acc(d[i]) * activation_at<kKind, CpuMath>(Acc(in[i])).slope;
        out[i] = T(keep ? Acc(out[i]) + value : value);
      }
    });
  });
}

void activate_gated(const Tensor& x, Activation kind, Tensor& y) {
  const int64_t f = y.dim(-1);
  for_types(x, kind, [&]<class T, Activation kKind>() {
    using Acc = acc_t<T>;
    for_rows(x, y.numel() / f, f, [&](int64_t row) {
      const T *gate = x.data<T>() + row * 2 * f, *up = gate + f;
      T* out = y.data<T>() + row * f;
#pragma omp simd
      for (int64_t i = 0; i < f; ++i)
        out[i] = T(activation_at<kKind, CpuMath>(Acc(gate[i])).value * Acc(up[i]));
    });
  });
}

void activate_gated_backward(const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx) {
  const int64_t f = dy.dim(-1);
  for_types(x, kind, [&]<class T, Activation kKind>() {
    using Acc = acc_t<T>;
    const bool keep = dx.beta != 0.f;
    for_rows(x, dy.numel() / f, f, [&](int64_t row) {
      const T *gate = x.data<T>() + row * 2 * f, *up = gate + f, *d = dy.data<T>() + row * f;
      T *dgate = dx.tensor.data<T>() + row * 2 * f, *dup = dgate + f;
#pragma omp simd
      for (int64_t i = 0; i < f; ++i) {
        const auto act = activation_at<kKind, CpuMath>(Acc(gate[i]));
        const Acc to_gate = Acc(d[i]) * Acc(up[i]) * act.slope, to_up = Acc(d[i]) * act.value;
        dgate[i] = T(keep ? Acc(dgate[i]) + to_gate : to_gate);
        dup[i] = T(keep ? Acc(dup[i]) + to_up : to_up);
      }
    });
  });
}

}  // namespace phx::kernels::cpu
