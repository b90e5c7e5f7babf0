// The check that every op passes: its gradients against central differences, in f64 on the CPU.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "phalanx/core/autograd.h"
#include "phalanx/core/tensor.h"

namespace phx::testing {

// A CPU runtime for tests, with two worker threads so that threaded paths run.
Runtime& test_runtime();
inline Device test_device() { return test_runtime().device(); }

struct Seed {
  uint64_t value;
};
// Standard normals by Philox: element i is the same for every dtype and device (before rounding).
Tensor randn(const Shape& shape, Seed seed, DType dtype = DType::f64,
             Device device = test_device());
Tensor rand_ints(const Shape& shape, int64_t below, Seed seed, DType dtype = DType::i64,
                 Device device = test_device());

// The gradients of sum(f(inputs) * r) for a fixed random r, one per input.
struct Gradients {
  Tensor output;
  std::vector<Tensor> inputs;
};
using Function = std::function<Tensor(std::span<const Tensor> inputs)>;
Gradients gradients_of(const Function& f, std::span<const Tensor> inputs, Seed seed = {99});

// Fails unless every gradient agrees with central differences: max |a - b| <= 1e-6 max |b|. The
// differences themselves are good to about 1e-9 (step 1e-5, f64), so 1e-6 leaves room for
// curvature.
void expect_gradients_match(const Function& f, std::vector<Tensor> inputs, double tolerance = 1e-6);

// max |a - b| <= tolerance * max |b| + floor, same shape.
void expect_close(const Tensor& a, const Tensor& b, double tolerance, double floor = 0);

// What an op allocates, forward and backward, is the same on cpu and on meta, to the byte and by
// purpose. f makes its inputs itself on the given device.
void expect_meta_allocates_like_cpu(const std::function<void(Device)>& f);

// The message of the Error that f throws; fails if it throws none.
std::string error_of(const std::function<void()>& f);

// A test that needs a GPU: it does not exist in CPU builds, and is skipped where a CUDA build finds
// none.
#ifdef PHX_HAVE_CUDA
#define PHX_CUDA_TEST(suite, fact)                         \
  static void suite##_##fact();                            \
  TEST(suite, fact) {                                      \
    std::string why;                                       \
    if (!::phx::cuda_available(&why)) GTEST_SKIP() << why; \
    suite##_##fact();                                      \
  }                                                        \
  static void suite##_##fact()
#else
#define PHX_CUDA_TEST(suite, fact) [[maybe_unused]] static void suite##_##fact()
#endif

Runtime& cuda_test_runtime();

// f's output and gradients on cuda against cpu, both from the same inputs in `dtype`; relative to
// max|b|. The tolerance covers one rounding to `dtype` a tensor element plus f32 sums in another
// order.
void expect_cuda_matches_cpu(const Function& f, const std::vector<Tensor>& cpu_inputs,
                             double tolerance);

}  // namespace phx::testing
