#include <algorithm>
#include <chrono>

#include "phalanx/kernels/matmul.h"
#include "phalanx/kernels/random_fill.h"
#include "phalanx/train/trainer.h"

namespace phx {

namespace {

// A square product that fills the cores for a few milliseconds at a time; the best of several,
// since anything else that runs only makes it slower.
double best_product(Device device, DType dtype) {
  constexpr int64_t n = 1024;
  const DType acc = acc_dtype(dtype);
  Tensor a = empty({n, n}, acc, device), b = empty({n, n}, acc, device),
         c = empty({n, n}, acc, device);
  kernels::fill_normal(a, kernels::whole_box(a), {.seed = 1});
  kernels::fill_normal(b, kernels::whole_box(b), {.seed = 2});
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    const auto start = std::chrono::steady_clock::now();
    kernels::matmul(a, b, {}, {c, 0.f});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * n * n * n / seconds);
  }
  return best;
}

// Its tensors are none of a step's.
double measured_on_cpu(Device device, DType dtype) {
  const double best = best_product(device, dtype);
  device.runtime().allocator().reset_peak();
  return best;
}

}  // namespace

std::optional<double> peak_flops(Device device, DType dtype) {
  if (device.kind() == DeviceKind::cpu) return measured_on_cpu(device, dtype);
  if (device.kind() != DeviceKind::cuda) return std::nullopt;
  const std::string name = device.runtime().description();
  const bool hopper =
      name.find("H100") != std::string::npos || name.find("H200") != std::string::npos;
  if (!hopper) return std::nullopt;
  return dtype == DType::f32 ? 66.9e12 : 989.5e12;  // NVIDIA's data sheet, dense
}

}  // namespace phx
