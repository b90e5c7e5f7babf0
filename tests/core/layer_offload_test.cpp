#include "phalanx/core/layer_offload.h"

#include <gtest/gtest.h>

#include "phalanx/core/autograd.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int64_t kElements = 1000;
constexpr int64_t kBytes = 8192;  // of f64, rounded up to a multiple of 256

// x^2 by way of a copy of x, which is what the backward reads: 2 c dy. `copy` sees that tensor.
Tensor square(const Tensor& x, Tensor* copy = nullptr) {
  Tensor c = empty_like(x), y = empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    c.data<double>()[i] = x.data<double>()[i];
    y.data<double>()[i] = x.data<double>()[i] * x.data<double>()[i];
  }
  if (copy != nullptr) *copy = c;
  return with_backward(y, {x}, [c](const Tensor& dy, GradOut& grad) {
    Tensor& dx = grad.out(0);
    for (int64_t i = 0; i < dy.numel(); ++i)
      dx.data<double>()[i] = 2 * c.data<double>()[i] * dy.data<double>()[i];
  });
}

int64_t activations(Runtime& runtime) {
  return runtime.allocator().report().live[size_t(Purpose::activations)];
}

// The gradient of x^8 by three squares, of which the first `offloaded` are; `between` is called
// after the forward.
std::vector<double> gradient_of_squares(
    Runtime& runtime, int offloaded, const std::function<void()>& between = [] {}) {
  const Tensor x = randn({kElements}, Seed{1}, DType::f64, runtime.device());
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    LayerOffload offload(runtime);
    Tensor y = in[0];
    for (int i = 0; i < 3; ++i) {
      const auto layer = [](const Tensor& x) { return square(x); };
      y = i < offloaded ? offload.run(std::move(y), layer) : offload.run_kept(std::move(y), layer);
    }
    offload.finish();
    return std::vector<Tensor>{y};
  });
  const std::vector<double> ones(kElements, 1.0);
  const Tensor dy = from_values(ones, {kElements}, DType::f64, runtime.device());
  segment.take_outputs();
  between();
  return to_values(segment.backward(std::span(&dy, 1))[0]);
}

TEST(LayerOffload, GivesTheSameGradient) {
  Runtime runtime;
  const std::vector<double> plain = gradient_of_squares(runtime, 0);
  for (const int offloaded : {1, 2, 3}) EXPECT_EQ(gradient_of_squares(runtime, offloaded), plain);
  const double x = to_values(randn({kElements}, Seed{1}))[7];
  EXPECT_NEAR(plain[7], 8 * std::pow(x, 7), 1e-12 * std::abs(8 * std::pow(x, 7)));
}

TEST(LayerOffload, MovesWhatALayerKeepsToTheHost) {
  Runtime runtime;
  int64_t kept[4];
  for (const int offloaded : {0, 1, 2, 3})
    gradient_of_squares(runtime, offloaded, [&] { kept[offloaded] = activations(runtime); });
  // x itself, dy, and a copy of each layer's input; the first layer's input is x, which the test
  // holds on to, so that it goes with the first layer.
  EXPECT_EQ(kept[0], 5 * kBytes);
  EXPECT_EQ(kept[1], 3 * kBytes);
  EXPECT_EQ(kept[2], 2 * kBytes);
  EXPECT_EQ(kept[3], 1 * kBytes);
  const HostMemory host = host_memory(runtime);
  EXPECT_EQ(host.pinned.peak[size_t(Purpose::activations)], 4 * kBytes);
  EXPECT_EQ(host.pinned.live[size_t(Purpose::activations)], 0);
  EXPECT_EQ(host.plain.reserved, 0);
}

TEST(LayerOffload, RefusesToReadATensorThatIsAway) {
  Runtime runtime;
  const Tensor x = randn({kElements}, Seed{1}, DType::f64, runtime.device());
  Tensor copy;
  Segment segment(std::span(&x, 1), [&](std::span<const Tensor> in) {
    LayerOffload offload(runtime);
    Tensor y = offload.run(in[0], [&](const Tensor& x) { return square(x, &copy); });
    offload.finish();
    return std::vector<Tensor>{y};
  });
  EXPECT_FALSE(copy.storage()->resident());
  EXPECT_NE(error_of([&] { copy.raw(); }).find("while its memory is given back"),
            std::string::npos);
}

TEST(LayerOffload, LeavesAForwardWithoutBackwardAlone) {
  Runtime runtime;
  GradMode off(runtime, false);
  LayerOffload offload(runtime);
  Tensor x = randn({kElements}, Seed{1}, DType::f64, runtime.device());
  x = offload.run(std::move(x), [](const Tensor& x) { return square(x); });
  offload.finish();
  EXPECT_EQ(activations(runtime), kBytes);
  EXPECT_EQ(host_memory(runtime).reserved(), 0);
}

}  // namespace
}  // namespace phx
