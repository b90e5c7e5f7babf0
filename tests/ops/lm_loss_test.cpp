#include "phalanx/ops/lm_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor scalar(double value, DType dtype = DType::f64, Device device = test_device()) {
  if (device.kind() == DeviceKind::meta) return empty({1}, dtype, device);
  return from_values(std::vector<double>{value}, {1}, dtype, device);
}

Tensor labels_of(std::vector<int64_t> labels, DType dtype = DType::i64) {
  return from_ints(labels, {int64_t(labels.size())}, dtype, test_device());
}

struct Result {
  Tensor loss_sum, token_losses, dx, dw;
};

// The gradients of lm_loss with x and w as leaves, from a backward that starts with dloss.
Result run(const Tensor& x, const Tensor& w, const Tensor& labels, const Tensor& mask,
           const Tensor& grad_scale, const LmLossOptions& options, double dloss = 1) {
  Segment segment(std::vector<Tensor>{x, w}, [&](std::span<const Tensor> in) {
    const LmLoss loss = lm_loss(in[0], in[1], labels, mask, grad_scale, options);
    return std::vector<Tensor>{loss.loss_sum, loss.token_losses};
  });
  const std::vector<Tensor> out = segment.outputs();
  const std::vector<Tensor> start{scalar(dloss, out[0].dtype(), x.device()), Tensor()};
  const std::vector<Tensor> gradients = segment.backward(start);
  return {out[0], out[1], gradients[0], gradients[1]};
}

// 11 rows, some ignored; 13 classes in 16 rows of w; small chunks.
struct Case {
  Tensor x = randn({11, 6}, Seed{1});
  Tensor w = randn({16, 6}, Seed{2});
  Tensor labels = labels_of({0, 12, 3, -100, 5, 5, 7, -100, 1, 2, 11});
  Tensor mask = randn({11}, Seed{3});
  LmLossOptions options{.vocab = 13, .chunk_bytes = 3 * 16 * 8};  // three rows at a time
};

TEST(LmLoss, MatchesHandWorkedValues) {
  // Logits 0 and log 3: probabilities 1/4 and 3/4.
  const Tensor x = from_values(std::vector<double>{1, 1}, {2, 1}, DType::f64, test_device());
  const Tensor w =
      from_values(std::vector<double>{0, std::log(3.0)}, {2, 1}, DType::f64, test_device());
  const Result a = run(x, w, labels_of({0, 1}, DType::i32), {}, scalar(2), {});
  EXPECT_NEAR(to_values(a.token_losses)[0], std::log(4.0), 1e-15);
  EXPECT_NEAR(to_values(a.token_losses)[1], std::log(4.0 / 3), 1e-15);
  EXPECT_NEAR(to_values(a.loss_sum)[0], std::log(16.0 / 3), 1e-15);
  // dlogits are (-3/4, 3/4) and (1/4, -1/4), times two.
  EXPECT_NEAR(to_values(a.dx)[0], 1.5 * std::log(3.0), 1e-15);
  EXPECT_NEAR(to_values(a.dx)[1], -0.5 * std::log(3.0), 1e-15);
  EXPECT_NEAR(to_values(a.dw)[0], -1, 1e-15);
  EXPECT_NEAR(to_values(a.dw)[1], 1, 1e-15);
}

TEST(LmLoss, GradientsMatchFiniteDifferences) {
  const Case c;
  for (double softcap : {0.0, 2.0}) {
    for (const Tensor& mask : {Tensor(), c.mask}) {
      LmLossOptions options = c.options;
      options.logit_softcap = softcap;
      expect_gradients_match(
          [&](std::span<const Tensor> in) {
            return lm_loss(in[0], in[1], c.labels, mask, {}, options).loss_sum;
          },
          {c.x, c.w});
    }
  }
}

TEST(LmLoss, AWeightThatIsNoLeafGetsTheScaledGradientInTheBackward) {
  const Case c;
  const auto reshaped = [&](std::span<const Tensor> in) {
    const Tensor w = in[1].reshape({16, 6});
    return lm_loss(in[0], w, c.labels, c.mask, scalar(0.7), c.options).loss_sum;
  };
  const Gradients a = gradients_of(reshaped, std::vector<Tensor>{c.x, c.w}, Seed{99});
  const double start = to_values(randn({1}, Seed{99}))[0];  // what gradients_of starts from
  const Result b = run(c.x, c.w, c.labels, c.mask, {}, c.options, 0.7 * start);
  expect_close(a.inputs[0], b.dx, 1e-14);
  expect_close(a.inputs[1], b.dw, 1e-14);
}

TEST(LmLoss, GradientsInTheForwardEqualThoseOfTheBackward) {
  const Case c;
  for (double softcap : {0.0, 2.0}) {
    LmLossOptions options = c.options;
    options.logit_softcap = softcap;
    const Result forward = run(c.x, c.w, c.labels, c.mask, scalar(0.37), options);
    const Result backward = run(c.x, c.w, c.labels, c.mask, {}, options, 0.37);
    expect_close(forward.loss_sum, backward.loss_sum, 1e-14);
    expect_close(forward.token_losses, backward.token_losses, 1e-14);
    expect_close(forward.dx, backward.dx, 1e-13);
    expect_close(forward.dw, backward.dw, 1e-13);
  }
}

TEST(LmLoss, ChunksDoNotChangeTheResult) {
  const Case c;
  LmLossOptions whole = c.options;
  whole.chunk_bytes = 1 << 20;
  for (const Tensor& scale : {Tensor(), scalar(1)}) {
    const Result a = run(c.x, c.w, c.labels, c.mask, scale, c.options);
    const Result b = run(c.x, c.w, c.labels, c.mask, scale, whole);
    expect_close(a.loss_sum, b.loss_sum, 1e-14);
    expect_close(a.dx, b.dx, 1e-13);
    expect_close(a.dw, b.dw, 1e-13);
  }
}

TEST(LmLoss, PaddingAndIgnoredRowsGetNothing) {
  const Case c;
  for (const Tensor& scale : {Tensor(), scalar(1)}) {
    const Result a = run(c.x, c.w, c.labels, {}, scale, c.options);
    const auto dw = to_values(a.dw), dx = to_values(a.dx), losses = to_values(a.token_losses);
    for (int64_t i = 0; i < 3 * 6; ++i) EXPECT_EQ(dw[13 * 6 + i], 0) << i;
    for (int64_t row : {3, 7}) {
      EXPECT_EQ(losses[row], 0);
      for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(dx[row * 6 + i], 0);
    }
    EXPECT_NE(dw[12 * 6], 0);
    EXPECT_NE(dx[0], 0);
  }
}

TEST(LmLoss, LossIsThatOfTheLogits) {
  const Case c;
  LmLossOptions options = c.options;
  options.logit_softcap = 1.5;
  const Tensor logits = lm_logits(c.x, c.w, options);
  ASSERT_EQ(logits.shape(), Shape({11, 13}));
  const auto z = to_values(logits), label = to_values(c.labels), mask = to_values(c.mask);
  double expected = 0;
  for (int row = 0; row < 11; ++row) {
    if (label[row] < 0) continue;
    double sum = 0;
    for (int i = 0; i < 13; ++i) {
      ASSERT_LE(std::abs(z[row * 13 + i]), 1.5);
      sum += std::exp(z[row * 13 + i]);
    }
    expected += mask[row] * (std::log(sum) - z[row * 13 + int(label[row])]);
  }
  const LmLoss loss = lm_loss(c.x, c.w, c.labels, c.mask, {}, options);
  EXPECT_NEAR(to_values(loss.loss_sum)[0], expected, 1e-12);
}

TEST(LmLoss, SixteenBitTypesStayNearF64) {
  const Case c;
  const Result exact = run(c.x, c.w, c.labels, c.mask, scalar(0.5), c.options);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto narrow = [&](const Tensor& x, DType to) {
      return from_values(to_values(x), x.shape(), to, test_device());
    };
    const Result a = run(narrow(c.x, dtype), narrow(c.w, dtype), c.labels,
                         narrow(c.mask, DType::f32), scalar(0.5, DType::f32), c.options);
    EXPECT_EQ(a.loss_sum.dtype(), DType::f32);
    EXPECT_EQ(a.dx.dtype(), dtype);
    // x, w and the logits are rounded to 8 or 11 bits: logits up to 8 move by a few times 8 / 2^9
    // (2^12), and the softmax by as much.
    const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-2 : 6e-2;
    expect_close(a.token_losses, exact.token_losses, tolerance);
    expect_close(a.dx, exact.dx, tolerance);
    expect_close(a.dw, exact.dw, tolerance);
  }
}

// How far a token's loss may lie from that of the exact logits of x [t, h] and w [v, h], given as
// they are stored. A logit errs by the order of its sum (h roundings of f32) and by the rounding to
// x's type; loss = lse - z_label, and lse moves by the mean of its logits' errors under a softmax
// that these errors themselves move by a factor e^2err at most. Beside that lse, which stays below
// 32 here, rounds by 2^-20, and its exponentials err by about 10 ulp: together 8 of these.
struct TokenLosses {
  std::vector<double> exact, error;  // [t]
};

TokenLosses exact_token_losses(const Tensor& x, const Tensor& w, const Tensor& labels,
                               int64_t vocab, int64_t ignore_index) {
  const int64_t t = x.dim(0), h = x.dim(1);
  const auto a = to_values(x), b = to_values(w), label = to_values(labels);
  const double rounding = x.dtype() == DType::bf16 ? 0x1p-8 : x.dtype() == DType::f16 ? 0x1p-11 : 0;
  TokenLosses result{std::vector<double>(t), std::vector<double>(t)};
  std::vector<double> z(vocab), err(vocab);
  for (int64_t i = 0; i < t; ++i) {
    if (label[i] == double(ignore_index)) continue;
    double largest = 0, sum = 0, mean = 0;
    for (int64_t j = 0; j < vocab; ++j) {
      double absolute = z[j] = 0;
      for (int64_t l = 0; l < h; ++l) {
        const double product = a[i * h + l] * b[j * h + l];
        z[j] += product;
        absolute += std::abs(product);
      }
      err[j] = double(h) * 0x1p-24 * absolute + rounding * std::abs(z[j]);
      largest = std::max(largest, err[j]);
    }
    for (int64_t j = 0; j < vocab; ++j) {
      sum += std::exp(z[j]);
      mean += std::exp(z[j]) * err[j];
    }
    EXPECT_LT(std::log(sum), 32);
    const auto at = size_t(label[i]);
    result.exact[i] = std::log(sum) - z[at];
    result.error[i] = std::exp(2 * largest) * mean / sum + err[at] + 8 * 0x1p-20;
  }
  return result;
}

// Every token's loss is that of the logits, and loss_sum the sum of just these.
void expect_losses(const Result& result, const TokenLosses& expected, const Tensor& mask) {
  const auto losses = to_values(result.token_losses), weights = to_values(mask);
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_LE(std::abs(losses[i] - expected.exact[i]), expected.error[i]) << "token " << i;
    sum += losses[i] * weights[i];
  }
  // Added up in f64 on every device, and rounded once: 2^-24 of the sum, however much cancels.
  EXPECT_NEAR(to_values(result.loss_sum)[0], sum, 0x1p-24 * std::abs(sum) + 1e-12);
}

TEST(LmLoss, ErrsByTheRoundingOfItsLogits) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool scaled : {false, true}) {
      const int64_t v = 200;
      const Tensor x = randn({77, 24}, Seed{1}, dtype), w = randn({v, 24}, Seed{2}, dtype);
      const Tensor labels = rand_ints({77}, v - 3, Seed{3});
      const Tensor mask = randn({77}, Seed{4}, DType::f32);
      const Result a = run(x, w, labels, mask, scaled ? scalar(0.5, DType::f32) : Tensor(),
                           {.vocab = v - 3, .ignore_index = 5});
      expect_losses(a, exact_token_losses(x, w, labels, v - 3, 5), mask);
    }
  }
}

// A parameter as training has it: its gradient lives on, and uses are counted.
class CountingLeaf : public Node {
 public:
  CountingLeaf(Runtime& runtime, Tensor gradient) : Node(runtime), gradient(gradient) {}
  bool is_leaf() const override { return true; }
  Sink leaf_sink() override { return {gradient, touched++ == 0 ? 0.f : 1.f}; }
  void leaf_done() override { ++done; }
  Tensor gradient;
  int touched = 0, done = 0;
};

TEST(LmLoss, EachUseOfAWeightAddsToItsSinkAndIsReportedOnce) {
  const Case c;
  const Result once = run(c.x, c.w, c.labels, c.mask, scalar(1), c.options);
  const auto leaf = std::make_shared<CountingLeaf>(test_runtime(), randn(c.w.shape(), Seed{7}));
  Tensor w = c.w.detach(), x = c.x.detach();
  w.set_node(leaf, 0);
  x.set_node(std::make_shared<CountingLeaf>(test_runtime(), empty_like(c.x)), 0);
  for (int use = 1; use <= 2; ++use) {
    const LmLoss loss = lm_loss(x, w, c.labels, c.mask, scalar(1), c.options);
    EXPECT_EQ(leaf->touched, use) << "the weight's gradient is formed in the forward";
    EXPECT_EQ(leaf->done, use - 1) << "and counts as done in the backward, as everywhere";
    backward(loss.loss_sum, scalar(1));
    EXPECT_EQ(leaf->touched, use);
    EXPECT_EQ(leaf->done, use);
  }
  std::vector<double> twice = to_values(once.dw);
  for (double& value : twice) value *= 2;
  expect_close(leaf->gradient, from_values(twice, c.w.shape(), DType::f64, test_device()), 1e-13);
}

TEST(LmLoss, AHeadAloneIsTrainedToo) {
  const Case c;
  const Result both = run(c.x, c.w, c.labels, c.mask, scalar(1), c.options);
  const auto leaf = std::make_shared<CountingLeaf>(test_runtime(), empty_like(c.w));
  Tensor w = c.w.detach();
  w.set_node(leaf, 0);
  backward(lm_loss(c.x.detach(), w, c.labels, c.mask, scalar(1), c.options).loss_sum, scalar(1));
  EXPECT_EQ(leaf->done, 1);
  expect_close(leaf->gradient, both.dw, 0);
}

TEST(LmLoss, WithoutGradModeNothingReachesTheWeight) {
  const Case c;
  const auto leaf = std::make_shared<CountingLeaf>(test_runtime(), empty_like(c.w));
  Tensor w = c.w.detach();
  w.set_node(leaf, 0);
  GradMode off(test_runtime(), false);
  const LmLoss loss = lm_loss(c.x, w, c.labels, c.mask, scalar(1), c.options);
  EXPECT_FALSE(loss.loss_sum.requires_grad());
  EXPECT_EQ(leaf->touched, 0);
  EXPECT_EQ(leaf->done, 0);
}

TEST(LmLoss, MetaAllocatesLikeCpu) {
  for (const bool scaled : {false, true}) {
    expect_meta_allocates_like_cpu([&](Device device) {
      const Tensor x = zeros({150, 8}, DType::f32, device);
      const Tensor w = zeros({40, 8}, DType::f32, device);
      const Tensor labels = zeros({150}, DType::i64, device);
      const Tensor mask = zeros({150}, DType::f32, device);
      run(x, w, labels, mask, scaled ? scalar(1, DType::f32, device) : Tensor(),
          {.vocab = 33, .chunk_bytes = 70 * 40 * 4});
    });
  }
}

TEST(LmLoss, LogitsNeverExistWhole) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const int64_t t = 8192, h = 64, v = 128256;
  const Tensor x = empty({t, h}, DType::bf16, meta.device());
  const Tensor w = empty({v, h}, DType::bf16, meta.device());
  const Tensor labels = empty({t}, DType::i32, meta.device());
  run(x, w, labels, {}, scalar(1, DType::f32, meta.device()), {});
  const int64_t workspace = meta.allocator().report().peak[static_cast<int>(Purpose::workspace)];
  EXPECT_GE(workspace, 2048 * v * 2);  // the largest multiple of 64 rows below 512 MiB
  EXPECT_LE(workspace, (int64_t{1} << 30) + (int64_t{64} << 20));  // and the GEMM's own
}

PHX_CUDA_TEST(LmLoss, CudaMatchesCpuAtOddSizes) {
  const Device gpu = cuda_test_runtime().device();
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t v : {67, 1000}) {
      for (const bool scaled : {false, true}) {
        const int64_t t = 77, h = 24;
        const Tensor x = randn({t, h}, Seed{1}, dtype), w = randn({v, h}, Seed{2}, dtype);
        const Tensor labels = rand_ints({t}, v - 3, Seed{3});
        const Tensor mask = randn({t}, Seed{4}, DType::f32);
        const auto on = [&](Device device) {
          return run(to_device(x, device), to_device(w, device), to_device(labels, device),
                     to_device(mask, device), scaled ? scalar(0.5, DType::f32, device) : Tensor(),
                     {.vocab = v - 3, .ignore_index = 5, .chunk_bytes = 30 * v * size_of(dtype)});
        };
        const Result a = on(gpu), b = on(test_device());
        const TokenLosses expected = exact_token_losses(x, w, labels, v - 3, 5);
        expect_losses(a, expected, mask);
        expect_losses(b, expected, mask);
        // f32: sums in another order. bf16: a logit near 16 that rounds the other way moves by
        // 2^-4, and its probability with it.
        const double tolerance = dtype == DType::f32 ? 2e-5 : 7e-2;
        expect_close(a.dx, b.dx, tolerance);
        expect_close(a.dw, b.dw, tolerance);
      }
    }
  }
}

PHX_CUDA_TEST(LmLoss, CudaLogitsMatchCpu) {
  const Tensor x = randn({5, 24}, Seed{1}, DType::f32), w = randn({67, 24}, Seed{2}, DType::f32);
  const Device gpu = cuda_test_runtime().device();
  const LmLossOptions options{.vocab = 61, .logit_softcap = 4};
  expect_close(lm_logits(to_device(x, gpu), to_device(w, gpu), options), lm_logits(x, w, options),
               1e-5);
}

TEST(LmLoss, RefusesALabelOutsideOfTheVocabulary) {
  const Case c;
  const std::string message = error_of([&] {
    lm_loss(c.x.rows(0, 3), c.w, labels_of({0, 12, 13}), {}, {}, c.options);
  });
  EXPECT_EQ(message,
            "lm_loss: label 13 at position 2 is not in the vocabulary of 13; positions without a "
            "target carry -100");
}

TEST(LmLoss, RefusesOtherShapesAndTypes) {
  const Case c;
  EXPECT_EQ(error_of([&] {
              lm_loss(c.x, randn({16, 5}, Seed{1}), c.labels, {}, {});
            }),
            "LM head: x is [11, 6] and w [16, 5], but they should be [t, h] and [v, h]");
  EXPECT_EQ(error_of([&] { lm_loss(c.x, c.w, c.labels.rows(0, 10), {}, {}); }),
            "lm_loss: x is [11, 6], so labels should be [11] of i64 or i32, not [10] of i64");
  EXPECT_EQ(error_of([&] { lm_loss(c.x, c.w, c.labels, randn({11}, Seed{1}, DType::f32), {}); }),
            "lm_loss: x is [11, 6], so loss_mask should be [11] of f64, not [11] of f32");
  EXPECT_EQ(error_of([&] { lm_loss(c.x, c.w, c.labels, {}, {}, {.vocab = 17}); }),
            "LM head: a vocabulary of 17 does not fit w [16, 6]");
}

TEST(LmLoss, RefusesAFactorThatIsNotInTheGradScale) {
  const Case c;
  EXPECT_EQ(error_of([&] { run(c.x, c.w, c.labels, {}, scalar(1), c.options, 0.5); }),
            "lm_loss: with a grad_scale the backward starts from 1, not 0.5; put the factor into "
            "grad_scale");
}

}  // namespace
}  // namespace phx
