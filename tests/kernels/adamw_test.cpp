#include "phalanx/kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/clip_factor.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/master_split.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using kernels::AdamWBuffers;
using kernels::AdamWOptions;

Tensor values(const std::vector<double>& x, DType dtype, Device device = test_device()) {
  return from_values(x, {int64_t(x.size())}, dtype, device);
}

// Scalars of a step, with a clip factor put in by hand.
StepScalars scalars_of(int64_t step, double lr, double weight_decay, double clip_factor,
                       Device device = test_device()) {
  StepScalars scalars(device);
  StepValues host = step_values(step, 0.9, 0.999, 1);
  host.lr = lr;
  host.weight_decay = weight_decay;
  scalars.begin_step(host);
  Tensor factor = scalars.slot(Slot::clip_factor);
  kernels::fill(factor, clip_factor);
  return scalars;
}

struct Plain {
  std::vector<double> p, m, v;
  void step(const std::vector<double>& grad, int t, double lr, double decay, double clip) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = grad[i] * clip;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double mhat = m[i] / (1 - std::pow(0.9, t)), vhat = v[i] / (1 - std::pow(0.999, t));
      p[i] -= lr * (mhat / (std::sqrt(vhat) + 1e-8) + decay * p[i]);
    }
  }
};

TEST(AdamW, MatchesHandWorkedValues) {
  // First step: mhat = g, vhat = g^2, so the direction is g / |g| = 1 whatever g is.
  // p = 2 - 0.1 (1 + 0.5 * 2) = 1.8;  m = 0.1 * 3 = 0.3;  v = 0.001 * 9.
  const StepScalars scalars = scalars_of(1, 0.1, 0.5, 0.5);
  AdamWBuffers of{.weight = values({2}, DType::f64),
                  .master = {},
                  .m = values({0}, DType::f64),
                  .v = values({0}, DType::f64)};
  kernels::adamw(values({6}, DType::f64), scalars.tensor(), {}, of);
  EXPECT_NEAR(to_values(of.weight)[0], 1.8, 1e-9);  // eps 1e-8 beside |g| = 3
  EXPECT_NEAR(to_values(of.m)[0], 0.3, 1e-15);
  EXPECT_NEAR(to_values(of.v)[0], 0.009, 1e-15);
}

TEST(AdamW, DecayFactorZeroLeavesTheDecayOut) {
  const StepScalars scalars = scalars_of(1, 0.1, 0.5, 1);
  AdamWBuffers of{.weight = values({2}, DType::f64),
                  .master = {},
                  .m = values({0}, DType::f64),
                  .v = values({0}, DType::f64)};
  kernels::adamw(values({6}, DType::f64), scalars.tensor(), {.decay = 0}, of);
  EXPECT_NEAR(to_values(of.weight)[0], 1.9, 1e-9);
}

enum class Kind { own, separate, remainder };

AdamWBuffers make_buffers(Kind kind, const Tensor& start, DType weight, Device device) {
  const Shape shape = start.shape();
  AdamWBuffers of{.weight = empty(shape, weight, device), .master = {}, .m = {}, .v = {}};
  const DType acc = acc_dtype(weight);
  of.m = zeros(shape, acc, device);
  of.v = zeros(shape, acc, device);
  const Tensor master = to_device(start, device);
  kernels::cast(master, of.weight);
  if (kind == Kind::separate) {
    of.master = empty(shape, DType::f32, device);
    kernels::cast(master, of.master);
  } else if (kind == Kind::remainder) {
    Tensor f32 = empty(shape, DType::f32, device);
    kernels::cast(master, f32);
    of.master = empty(shape, DType::u16, device);
    kernels::split_master(f32, of.weight, of.master);
  }
  return of;
}

Tensor master_of(const AdamWBuffers& of) {
  if (!of.master.defined()) return of.weight;
  if (of.master.dtype() == DType::f32) return of.master;
  Tensor master = empty(of.weight.shape(), DType::f32, of.weight.device());
  kernels::join_master(of.weight, of.master, master);
  return master;
}

struct Layout {
  Kind kind;
  DType weight;
};
const Layout kLayouts[] = {{Kind::own, DType::f64},
                           {Kind::own, DType::f32},
                           {Kind::separate, DType::bf16},
                           {Kind::separate, DType::f16},
                           {Kind::remainder, DType::bf16}};

void expect_follows_plain(const Layout& layout, DType grad_dtype, Device device) {
  SCOPED_TRACE(::testing::Message() << "weight " << layout.weight << ", gradient " << grad_dtype);
  const int64_t n = 1003;
  const Tensor start = randn({n}, Seed{1}, acc_dtype(layout.weight));
  AdamWBuffers of = make_buffers(layout.kind, start, layout.weight, device);
  Plain plain{to_values(start), std::vector<double>(n), std::vector<double>(n)};
  for (int t = 1; t <= 5; ++t) {
    const Tensor grad = randn({n}, Seed{uint64_t(10 + t)}, grad_dtype);
    const StepScalars scalars = scalars_of(t, 0.01, 0.1, 0.25, device);
    kernels::adamw(to_device(grad, device), scalars.tensor(), {}, of);
    plain.step(to_values(grad), t, 0.01, 0.1, 0.25);
  }
  // Five steps in f32: a few roundings of 6e-8 each.
  const double tolerance = layout.weight == DType::f64 ? 1e-13 : 1e-6;
  expect_close(master_of(of), from_values(plain.p, {n}, DType::f64, test_device()), tolerance);
  expect_close(of.m, from_values(plain.m, {n}, DType::f64, test_device()), tolerance);
  expect_close(of.v, from_values(plain.v, {n}, DType::f64, test_device()), tolerance);
  if (layout.kind == Kind::own) return;
  // The weight is the master in 16 bits: half a unit in its last place.
  const double half_unit = layout.weight == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const auto weight = to_values(of.weight), master = to_values(master_of(of));
  for (int64_t i = 0; i < n; ++i)
    ASSERT_LE(std::abs(weight[i] - master[i]), half_unit * std::abs(master[i]) + 1e-7);
}

TEST(AdamW, FollowsAPlainReferenceInEveryLayout) {
  for (const Layout& layout : kLayouts) {
    if (layout.weight == DType::f64) {
      expect_follows_plain(layout, DType::f64, test_device());
      continue;
    }
    for (DType grad : {DType::f32, DType::bf16, DType::f16})
      expect_follows_plain(layout, grad, test_device());
  }
}

TEST(AdamW, ASplitMasterTakesTheSameStepsAsASeparateOne) {
  const Tensor start = randn({999}, Seed{1}, DType::f32);
  AdamWBuffers a = make_buffers(Kind::separate, start, DType::bf16, test_device());
  AdamWBuffers b = make_buffers(Kind::remainder, start, DType::bf16, test_device());
  for (int t = 1; t <= 20; ++t) {
    const Tensor grad = randn({999}, Seed{uint64_t(t)}, DType::f32);
    const StepScalars scalars = scalars_of(t, 1e-3, 0.1, 1);
    kernels::adamw(grad, scalars.tensor(), {}, a);
    kernels::adamw(grad, scalars.tensor(), {}, b);
  }
  EXPECT_EQ(to_values(a.master), to_values(master_of(b)));
}

TEST(AdamW, ASkippedStepTouchesNothing) {
  for (const Layout& layout : kLayouts) {
    const DType acc = acc_dtype(layout.weight);
    AdamWBuffers of =
        make_buffers(layout.kind, randn({77}, Seed{1}, acc), layout.weight, test_device());
    const auto before = to_values(master_of(of));
    StepScalars scalars = scalars_of(1, 0.1, 0.1, 1);
    Tensor skip = scalars.slot(Slot::skip);
    kernels::fill(skip, 1);
    const Tensor grad = values(std::vector<double>(77, NAN), acc);
    kernels::adamw(grad, scalars.tensor(), {}, of);
    EXPECT_EQ(to_values(master_of(of)), before);
    EXPECT_EQ(to_values(of.m), std::vector<double>(77, 0.0));
    EXPECT_EQ(to_values(of.v), std::vector<double>(77, 0.0));
  }
}

TEST(AdamW, CanFollowTheDecoupledLearningRate) {
  StepScalars scalars(test_device());
  StepValues host = step_values(1, 0.9, 0.999, 1);
  host.lr = 100;
  host.decoupled_lr = 0.1;
  scalars.begin_step(host);
  Tensor factor = scalars.slot(Slot::clip_factor);
  kernels::fill(factor, 1);
  AdamWBuffers of{.weight = values({2}, DType::f64),
                  .master = {},
                  .m = values({0}, DType::f64),
                  .v = values({0}, DType::f64)};
  kernels::adamw(values({6}, DType::f64), scalars.tensor(), {.lr = Slot::decoupled_lr}, of);
  EXPECT_NEAR(to_values(of.weight)[0], 1.9, 1e-9);
}

TEST(AdamW, RefusesAMomentOf16BitsOtherThanBf16) {
  const std::string message = error_of([] {
    const StepScalars scalars = scalars_of(1, 0.1, 0, 1);
    AdamWBuffers of{.weight = values({2}, DType::f32),
                    .master = {},
                    .m = values({0}, DType::f16),
                    .v = values({0}, DType::f32)};
    kernels::adamw(values({6}, DType::f32), scalars.tensor(), {}, of);
  });
  EXPECT_EQ(message,
            "adamw: a weight of f32 has moments of f32 or bf16 and a gradient no wider than f32; "
            "they are f16, f32 and f32");
}

TEST(AdamW, RefusesABf16WeightWithoutAMaster) {
  const std::string message = error_of([] {
    const StepScalars scalars = scalars_of(1, 0.1, 0, 1);
    AdamWBuffers of{.weight = values({2}, DType::bf16),
                    .master = {},
                    .m = values({0}, DType::f32),
                    .v = values({0}, DType::f32)};
    kernels::adamw(values({6}, DType::f32), scalars.tensor(), {}, of);
  });
  EXPECT_EQ(message,
            "adamw: a weight of bf16 with no master; it is f32 or f64 with none, bf16 or f16 with "
            "f32, or bf16 with u16");
}

TEST(AdamW, RoundsUpWithTheProbabilityOfWhatIsCutOff) {
  // 0x3f804000 lies a quarter of the way from 0x3f80 to 0x3f81: up for the highest quarter of the
  // random numbers, alike for both signs.
  const float x = phx::detail::bits_float(0x3f804000u);
  EXPECT_EQ(kernels::round_at_random(x, 0xbfffu).bits, 0x3f80);
  EXPECT_EQ(kernels::round_at_random(x, 0xc000u).bits, 0x3f81);
  EXPECT_EQ(kernels::round_at_random(-x, 0xbfffu).bits, 0xbf80);
  EXPECT_EQ(kernels::round_at_random(-x, 0xc000u).bits, 0xbf81);
  EXPECT_EQ(kernels::round_at_random(1.f, 0xffffu).bits, 0x3f80) << "1 is a bf16";
  EXPECT_EQ(kernels::round_at_random(0.f, 0xffffu).bits, 0);
  EXPECT_EQ(kernels::round_at_random(INFINITY, 0xffffu).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(float(kernels::round_at_random(NAN, 0xffffu))));
}

// A copy with other types of moments, whose values must be representable.
AdamWBuffers with_moments(const AdamWBuffers& of, DType m, DType v) {
  const auto copied = [](const Tensor& x, DType dtype) {
    Tensor y = empty(x.shape(), dtype, x.device());
    kernels::cast(x, y);
    return y;
  };
  AdamWBuffers result{.weight = empty_like(of.weight),
                      .master = empty_like(of.master),
                      .m = copied(of.m, m),
                      .v = copied(of.v, v)};
  copy(of.weight, result.weight);
  copy(of.master, result.master);
  return result;
}

TEST(AdamW, A16BitMomentIsThe32BitOneRoundedAtRandom) {
  const int64_t n = 2051;  // more than one chunk of the kernel, and odd
  for (const auto& [m, v] : {std::pair{DType::bf16, DType::bf16},
                             {DType::bf16, DType::f32},
                             {DType::f32, DType::bf16}}) {
    AdamWBuffers narrow = with_moments(
        make_buffers(Kind::remainder, randn({n}, Seed{1}, DType::f32), DType::bf16, test_device()),
        m, v);
    for (int t = 1; t <= 4; ++t) {
      AdamWBuffers wide = with_moments(narrow, DType::f32, DType::f32);
      const StepScalars scalars = scalars_of(t, 1e-2, 0.1, 1);
      const Tensor grad = randn({n}, Seed{uint64_t(t)}, DType::bf16);
      const AdamWOptions options{.seed = 7, .first = 5};
      kernels::adamw(grad, scalars.tensor(), options, wide);
      kernels::adamw(grad, scalars.tensor(), options, narrow);
      EXPECT_EQ(to_values(master_of(narrow)), to_values(master_of(wide)))
          << "the update sees the moments before they are rounded";
      const kernels::MomentBits bits(scalars.tensor().data<double>(), options);
      for (int64_t i = 0; i < n; ++i) {
        const float m32 = wide.m.data<float>()[i], v32 = wide.v.data<float>()[i];
        if (m == DType::bf16)
          ASSERT_EQ(narrow.m.data<bf16>()[i].bits,
                    kernels::round_at_random(m32, bits.at(i) & 0xffff).bits);
        else
          ASSERT_EQ(narrow.m.data<float>()[i], m32);
        if (v == DType::bf16)
          ASSERT_EQ(narrow.v.data<bf16>()[i].bits,
                    kernels::round_at_random(v32, bits.at(i) >> 16).bits);
        else
          ASSERT_EQ(narrow.v.data<float>()[i], v32);
      }
    }
  }
}

TEST(AdamW, A16BitSquareFallsAsItShouldWhenGradientsEnd) {
  ASSERT_EQ(float(bf16(0.999f)), 1.f) << "to nearest it would never fall";
  const int64_t n = 4096;
  AdamWBuffers of{.weight = zeros({n}, DType::f32, test_device()),
                  .master = {},
                  .m = zeros({n}, DType::bf16, test_device()),
                  .v = values(std::vector<double>(n, 1.0), DType::bf16)};
  const Tensor grad = zeros({n}, DType::f32, test_device());
  for (int t = 1; t <= 1000; ++t) {
    const StepScalars scalars = scalars_of(t, 0, 0, 1);
    kernels::adamw(grad, scalars.tensor(), {}, of);
  }
  double mean = 0;
  for (const double v : to_values(of.v)) mean += v / n;
  // One element errs by some units of 2^-9 to 2^-8, say 5%; the mean of 4096 by a 64th of that.
  EXPECT_NEAR(mean, std::pow(0.999, 1000), 0.01 * std::pow(0.999, 1000));
}

void expect_pieces_round_alike(Device device) {
  const auto start = [&] {
    return with_moments(
        make_buffers(Kind::remainder, randn({50}, Seed{1}, DType::f32), DType::bf16, device),
        DType::bf16, DType::bf16);
  };
  AdamWBuffers whole = start(), other = start();
  const Tensor grad = randn({50}, Seed{2}, DType::bf16, device);
  const StepScalars scalars = scalars_of(1, 0.1, 0.1, 1, device);
  kernels::adamw(grad, scalars.tensor(), {.first = 100}, whole);
  for (const auto& [begin, count] : {std::pair{0, 7}, std::pair{7, 43}}) {
    const AdamWBuffers part{.weight = other.weight.rows(begin, count),
                            .master = other.master.rows(begin, count),
                            .m = other.m.rows(begin, count),
                            .v = other.v.rows(begin, count)};
    kernels::adamw(grad.rows(begin, count), scalars.tensor(), {.first = 100 + begin}, part);
  }
  EXPECT_EQ(to_values(whole.m), to_values(other.m));
  EXPECT_EQ(to_values(whole.v), to_values(other.v));
}

TEST(AdamW, RandomRoundingDependsOnTheElementAlone) { expect_pieces_round_alike(test_device()); }

PHX_CUDA_TEST(AdamW, CudaRandomRoundingDependsOnTheElementAlone) {
  expect_pieces_round_alike(cuda_test_runtime().device());
}

PHX_CUDA_TEST(AdamW, CudaRounds16BitMomentsAsTheCpuDoes) {
  const int64_t n = 100'003;
  const auto start = [&](Device device) {
    return with_moments(
        make_buffers(Kind::remainder, randn({n}, Seed{1}, DType::f32), DType::bf16, device),
        DType::bf16, DType::bf16);
  };
  AdamWBuffers cpu = start(test_device()), cuda = start(cuda_test_runtime().device());
  const Tensor grad = randn({n}, Seed{2}, DType::bf16);
  for (const auto& [of, device] :
       {std::pair{&cpu, test_device()}, std::pair{&cuda, cuda_test_runtime().device()}}) {
    const StepScalars scalars = scalars_of(1, 0.1, 0.1, 0.3, device);
    kernels::adamw(to_device(grad, device), scalars.tensor(), {.seed = 3}, *of);
  }
  // The f32 before may differ in its last bit (a fused multiply-add): that moves the rounding of
  // one in 65536, by one unit.
  for (const auto& [a, b] : {std::pair{to_values(cpu.m), to_values(cuda.m)},
                             std::pair{to_values(cpu.v), to_values(cuda.v)}}) {
    int64_t different = 0;
    for (int64_t i = 0; i < n; ++i) {
      different += a[i] != b[i];
      ASSERT_NEAR(a[i], b[i], 0x1p-7 * std::abs(a[i]));
    }
    EXPECT_LT(different, n / 1000);
  }
}

PHX_CUDA_TEST(AdamW, CudaFollowsAPlainReferenceInEveryLayout) {
  for (const Layout& layout : kLayouts) {
    if (layout.weight == DType::f64) continue;
    for (DType grad : {DType::f32, DType::bf16, DType::f16})
      expect_follows_plain(layout, grad, cuda_test_runtime().device());
  }
}

PHX_CUDA_TEST(AdamW, CudaTakesBuffersAtAnyOffset) {
  const Device device = cuda_test_runtime().device();
  AdamWBuffers whole =
      make_buffers(Kind::remainder, randn({50}, Seed{1}, DType::f32), DType::bf16, device);
  AdamWBuffers other =
      make_buffers(Kind::remainder, randn({50}, Seed{1}, DType::f32), DType::bf16, device);
  const Tensor grad = randn({50}, Seed{2}, DType::bf16, device);
  const StepScalars scalars = scalars_of(1, 0.1, 0.1, 1, device);
  kernels::adamw(grad, scalars.tensor(), {}, whole);
  for (const auto& [begin, count] : {std::pair{0, 7}, std::pair{7, 43}}) {
    const AdamWBuffers part{.weight = other.weight.rows(begin, count),
                            .master = other.master.rows(begin, count),
                            .m = other.m.rows(begin, count),
                            .v = other.v.rows(begin, count)};
    kernels::adamw(grad.rows(begin, count), scalars.tensor(), {}, part);
  }
  EXPECT_EQ(to_values(master_of(whole)), to_values(master_of(other)));
}

}  // namespace
}  // namespace phx
