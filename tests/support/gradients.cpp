#include "support/gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "phalanx/core/philox.h"
#include "phalanx/core/segment.h"

namespace phx::testing {

Runtime& test_runtime() {
  static Runtime runtime({.threads = 2});
  return runtime;
}

Runtime& cuda_test_runtime() {
  static Runtime runtime({.kind = DeviceKind::cuda});
  return runtime;
}

Tensor randn(const Shape& shape, Seed seed, DType dtype, Device device) {
  std::vector<double> values(shape.numel());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        normal_from(philox4x32(philox_key(seed.value, 0, 0), uint32_t(i / 4), 0, 0, 0).x[i % 4]);
  return from_values(values, shape, dtype, device);
}

Tensor rand_ints(const Shape& shape, int64_t below, Seed seed, DType dtype, Device device) {
  std::vector<int64_t> values(shape.numel());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        int64_t(philox4x32(philox_key(seed.value, 1, 0), uint32_t(i), 0, 0, 0).x[0]) % below;
  return from_ints(values, shape, dtype, device);
}

namespace {

Segment::Forward as_forward(const Function& f) {
  return [f](std::span<const Tensor> inputs) { return std::vector<Tensor>{f(inputs)}; };
}

double dot(const Tensor& a, const Tensor& b) {
  const auto x = to_values(a), y = to_values(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

double max_abs(const std::vector<double>& values) {
  double most = 0;
  for (double value : values)
    most = std::max(most, std::isfinite(value) ? std::abs(value) : INFINITY);
  return most;
}

}  // namespace

Gradients gradients_of(const Function& f, std::span<const Tensor> inputs, Seed seed) {
  Segment segment(inputs, as_forward(f));
  const Tensor y = segment.outputs()[0];
  const Tensor r = y.device().kind() == DeviceKind::meta
                       ? empty_like(y)
                       : randn(y.shape(), seed, y.dtype(), y.device());
  return {y, segment.backward(std::span(&r, 1))};
}

void expect_gradients_match(const Function& f, std::vector<Tensor> inputs, double tolerance) {
  const Gradients analytic = gradients_of(f, inputs);
  const Tensor r = randn(analytic.output.shape(), {99});
  auto value = [&] {
    GradMode off(inputs[0].runtime(), false);
    return dot(f(inputs), r);
  };
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!is_float(inputs[k].dtype())) continue;
    ASSERT_EQ(inputs[k].dtype(), DType::f64);
    ASSERT_TRUE(analytic.inputs[k].defined()) << "input " << k << " got no gradient";
    double* x = inputs[k].data<double>();
    std::vector<double> numeric(inputs[k].numel());
    for (size_t i = 0; i < numeric.size(); ++i) {
      const double before = x[i], step = 1e-5;
      x[i] = before + step;
      const double up = value();
      x[i] = before - step;
      const double down = value();
      x[i] = before;
      numeric[i] = (up - down) / (2 * step);
    }
    const auto exact = to_values(analytic.inputs[k]);
    const double scale = std::max(max_abs(numeric), 1e-3);
    for (size_t i = 0; i < numeric.size(); ++i)
      ASSERT_NEAR(exact[i], numeric[i], tolerance * scale)
          << "gradient of input " << k << ", element " << i;
  }
}

void expect_close(const Tensor& a, const Tensor& b, double tolerance, double floor) {
  ASSERT_EQ(a.shape(), b.shape());
  const auto x = to_values(a), y = to_values(b);
  const double scale = max_abs(y);
  ASSERT_TRUE(std::isfinite(scale)) << "the reference is not finite";
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(std::abs(x[i] - y[i]), tolerance * scale + floor)
        << "element " << i << ": " << x[i] << " and " << y[i] << ", largest " << scale;
}

void expect_meta_allocates_like_cpu(const std::function<void(Device)>& f) {
  Runtime cpu({.kind = DeviceKind::cpu, .threads = 2});
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
  f(cpu.device());
  f(meta.device());
  const MemoryReport a = cpu.allocator().report(), b = meta.allocator().report();
  EXPECT_GT(a.peak_total, 0);
  EXPECT_EQ(a.peak_total, b.peak_total);
  for (int i = 0; i < kNumPurposes; ++i) {
    EXPECT_EQ(a.peak[i], b.peak[i]) << "peak of " << name(static_cast<Purpose>(i));
    EXPECT_EQ(a.live[i], b.live[i]) << "left over of " << name(static_cast<Purpose>(i));
  }
  EXPECT_GT(meta.cost().bytes, 0) << "the meta kernels count nothing";
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

void expect_cuda_matches_cpu(const Function& f, const std::vector<Tensor>& cpu_inputs,
                             double tolerance) {
  std::vector<Tensor> cuda_inputs;
  for (const Tensor& input : cpu_inputs)
    cuda_inputs.push_back(to_device(input, cuda_test_runtime().device()));
  const Gradients a = gradients_of(f, cuda_inputs), b = gradients_of(f, cpu_inputs);
  expect_close(a.output, b.output, tolerance);
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    ASSERT_EQ(a.inputs[i].defined(), b.inputs[i].defined());
    if (a.inputs[i].defined()) {
      SCOPED_TRACE(::testing::Message() << "gradient of input " << i);
      expect_close(a.inputs[i], b.inputs[i], tolerance);
    }
  }
}

}  // namespace phx::testing
