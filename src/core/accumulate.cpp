#include "phalanx/core/accumulate.h"

namespace phx {

namespace {

constexpr int64_t kGrain = 1 << 14;

template <class X, class Y>
void add_on_cpu(const Tensor& x, const Sink& sink) {
  const X* in = x.data<X>();
  Y* out = sink.tensor.data<Y>();
  using Acc = acc_t<Y>;
  x.device().threads().parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (sink.beta == 0.f) {
      for (int64_t i = begin; i < end; ++i) out[i] = Y(Acc(in[i]));
    } else {
      for (int64_t i = begin; i < end; ++i) out[i] = Y(Acc(out[i]) + Acc(in[i]));
    }
  });
}

}  // namespace

void add_to_sink(const Tensor& x, const Sink& sink) {
  PHX_ASSERT(x.numel() == sink.tensor.numel(), "adding ", x.shape(), " to ", sink.tensor.shape());
  switch (x.device().kind()) {
    case DeviceKind::meta:
      x.runtime().count({.flops = x.numel(), .bytes = x.bytes() + 2 * sink.tensor.bytes()});
      return;
    case DeviceKind::cpu:
      for_float_dtype(x.dtype(), [&]<class X>() {
        for_float_dtype(sink.tensor.dtype(), [&]<class Y>() { add_on_cpu<X, Y>(x, sink); });
      });
      return;
    case DeviceKind::cuda:
      break;
  }
#ifdef PHX_HAVE_CUDA
  cuda::add_to_sink(x, sink);
#endif
}

void make_sole_owner(Tensor& gradient) {
  if (gradient.sole_owner()) return;
  Tensor mine = empty_like(gradient);
  copy(gradient, mine);
  gradient = mine;
}

}  // namespace phx
