#include "phalanx/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;

Tensor copy_of(const Tensor& x) {
  Tensor y = empty_like(x);
  copy(x, y);
  return y;
}

Tensor columns(const Tensor& x, int64_t begin, int64_t end) {  // [rows, v] -> [rows, end - begin]
  const auto values = to_values(x);
  std::vector<double> cut;
  for (int64_t row = 0; row < x.dim(0); ++row)
    for (int64_t i = begin; i < end; ++i) cut.push_back(values[row * x.dim(1) + i]);
  return from_values(cut, {x.dim(0), end - begin}, x.dtype(), x.device());
}

struct Losses {
  Tensor lse, losses;
};

Losses losses_of(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const DType acc = acc_dtype(logits.dtype());
  const int64_t rows = logits.dim(0);
  Tensor statistics = empty({rows, 3}, acc, logits.device());
  Losses out{empty({rows}, acc, logits.device()), empty({rows}, acc, logits.device())};
  cross_entropy_statistics(logits, labels, options, statistics);
  cross_entropy_losses(statistics, labels, options, out.lse, out.losses);
  return out;
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const std::vector<double> z{1000, 1000, -1000, 0, 88, 89};
  const Tensor logits = from_values(z, {2, 3}, DType::f32, test_device());
  const Tensor labels = from_ints(std::vector<int64_t>{0, 2}, {2}, DType::i64, test_device());
  const auto losses = to_values(losses_of(logits, labels, {.vocab = 3}).losses);
  EXPECT_NEAR(losses[0], std::log(2.0), 1e-4);  // 1000 + log 2 keeps 6e-5 in f32
  EXPECT_NEAR(losses[1], std::log1p(std::exp(-1.0)), 1e-5);
}

TEST(CrossEntropy, LongRowsMatchF64) {
  // Several blocks of the one-pass sum and a rest; row 0 has its largest value late, and a larger
  // one in the padding.
  Tensor logits = randn({3, 1031}, Seed{1});
  logits.data<double>()[990] = 20;
  logits.data<double>()[1030] = 30;
  const Tensor labels = rand_ints({3}, 1000, Seed{2});
  const CrossEntropyOptions options{.vocab = 1000};
  const auto values = to_values(logits);
  const auto label = to_values(labels);
  std::vector<double> expected;
  for (int row = 0; row < 3; ++row) {
    double sum = 0;
    for (int i = 0; i < 1000; ++i) sum += std::exp(values[row * 1031 + i]);
    expected.push_back(std::log(sum) - values[row * 1031 + int(label[row])]);
  }
  const Tensor exact = from_values(expected, {3}, DType::f64, test_device());
  expect_close(losses_of(logits, labels, options).losses, exact, 1e-14);
  const Tensor narrow = from_values(values, {3, 1031}, DType::f32, test_device());
  expect_close(losses_of(narrow, labels, options).losses, exact, 1e-6);  // a few f32 roundings
}

TEST(CrossEntropy, FusedGradientMatchesTheSplitOne) {
  for (double softcap : {0.0, 1.5}) {
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const CrossEntropyOptions options{.vocab = 37, .logit_softcap = softcap, .ignore_index = 3};
      const Tensor logits = randn({9, 40}, Seed{1}, dtype);
      const Tensor labels = rand_ints({9}, 37, Seed{2}, DType::i32);
      const DType acc = acc_dtype(dtype);
      const RowWeights weights{.mask = randn({9}, Seed{3}, acc), .scale = randn({1}, Seed{4}, acc)};
      const Losses split = losses_of(logits, labels, options);
      Tensor a = copy_of(logits), b = copy_of(logits), losses = empty({9}, acc, test_device());
      cross_entropy_gradient(a, labels, split.lse, weights, options);
      cross_entropy_with_gradient(b, labels, weights, options, losses);
      expect_close(b, a, 0);
      expect_close(losses, split.losses, 0);
    }
  }
}

TEST(CrossEntropy, PiecesOfTheVocabularyCombineToTheWhole) {
  const CrossEntropyOptions whole{.vocab = 21, .logit_softcap = 2, .first_class = 0};
  const Tensor logits = randn({5, 24}, Seed{1});
  const Tensor labels = rand_ints({5}, 21, Seed{2});
  const Losses expected = losses_of(logits, labels, whole);

  // Ranks of 8 columns: the last has 5 classes and 3 columns of padding.
  std::vector<Tensor> parts;
  std::vector<std::vector<double>> statistics;
  for (int64_t rank = 0; rank < 3; ++rank) {
    CrossEntropyOptions options = whole;
    options.first_class = 8 * rank;
    parts.push_back(columns(logits, 8 * rank, 8 * rank + 8));
    Tensor mine = empty({5, 3}, DType::f64, test_device());
    cross_entropy_statistics(parts.back(), labels, options, mine);
    statistics.push_back(to_values(mine));
  }
  std::vector<double> combined;
  for (int row = 0; row < 5; ++row) {
    double largest = -INFINITY, sum = 0, target = 0;
    for (const auto& s : statistics) largest = std::max(largest, s[row * 3]);
    for (const auto& s : statistics) {
      sum += s[row * 3 + 1] * std::exp(s[row * 3] - largest);
      target += s[row * 3 + 2];
    }
    combined.insert(combined.end(), {largest, sum, target});
  }
  Tensor lse = empty({5}, DType::f64, test_device()), losses = empty_like(lse);
  cross_entropy_losses(from_values(combined, {5, 3}, DType::f64, test_device()), labels, whole, lse,
                       losses);
  expect_close(losses, expected.losses, 1e-14);

  Tensor gradient = copy_of(logits);
  cross_entropy_gradient(gradient, labels, expected.lse, {}, whole);
  for (int64_t rank = 0; rank < 3; ++rank) {
    CrossEntropyOptions options = whole;
    options.first_class = 8 * rank;
    cross_entropy_gradient(parts[rank], labels, lse, {}, options);
    expect_close(parts[rank], columns(gradient, 8 * rank, 8 * rank + 8), 1e-14);
  }
}

TEST(CrossEntropy, ALabelOutsideOfTheVocabularyMakesTheRowNan) {
  Tensor logits = randn({2, 8}, Seed{1});
  const Tensor labels = from_ints(std::vector<int64_t>{7, 2}, {2}, DType::i64, test_device());
  Tensor losses = empty({2}, DType::f64, test_device());
  cross_entropy_with_gradient(logits, labels, {}, {.vocab = 6}, losses);
  EXPECT_TRUE(std::isnan(to_values(losses)[0]));
  EXPECT_TRUE(std::isfinite(to_values(losses)[1]));
  EXPECT_TRUE(std::isnan(to_values(logits)[0]));
  EXPECT_TRUE(std::isfinite(to_values(logits)[8]));
}

TEST(CrossEntropy, MaskedRowsDoNotCountWhateverTheirLoss) {
  const Tensor losses = from_values(std::vector<double>{1, NAN, 4}, {3}, DType::f32, test_device());
  const Tensor mask = from_values(std::vector<double>{1, 0, 0.5}, {3}, DType::f32, test_device());
  Tensor sum = empty({1}, DType::f32, test_device());
  masked_sum(losses, mask, sum);
  EXPECT_EQ(to_values(sum)[0], 3);
}

PHX_CUDA_TEST(CrossEntropy, CudaMatchesCpuAtOddSizes) {
  const Device gpu = cuda_test_runtime().device();
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (double softcap : {0.0, 3.0}) {
      for (int64_t columns : {3, 1000, 1001, 50304}) {  // 1001: rows start unaligned
        const CrossEntropyOptions options{
            .vocab = columns - 2, .logit_softcap = softcap, .ignore_index = 0};
        const Tensor logits = randn({7, columns}, Seed{1}, dtype);
        const Tensor labels = rand_ints({7}, options.vocab, Seed{2});
        const RowWeights weights{.mask = randn({7}, Seed{3}, DType::f32),
                                 .scale = randn({1}, Seed{4}, DType::f32)};
        const RowWeights on_gpu{.mask = to_device(weights.mask, gpu),
                                .scale = to_device(weights.scale, gpu)};
        Tensor a = to_device(logits, gpu), b = copy_of(logits);
        const Tensor gpu_labels = to_device(labels, gpu);
        const Losses split = losses_of(a, gpu_labels, options);
        expect_close(split.losses, losses_of(b, labels, options).losses, 1e-5);

        Tensor again = copy_of(a);
        Tensor losses = empty({7}, DType::f32, gpu),
               expected = empty({7}, DType::f32, test_device());
        cross_entropy_with_gradient(a, gpu_labels, on_gpu, options, losses);
        cross_entropy_with_gradient(b, labels, weights, options, expected);
        // One rounding to the dtype of nearly equal f32 values: up to one unit in the last place.
        const double tolerance = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 1e-3 : 8e-3;
        expect_close(losses, expected, 1e-5);
        expect_close(a, b, tolerance);
        cross_entropy_gradient(again, gpu_labels, split.lse, on_gpu, options);
        expect_close(again, b, tolerance);

        Tensor sum = empty({1}, DType::f32, gpu),
               expected_sum = empty({1}, DType::f32, test_device());
        masked_sum(losses, on_gpu.mask, sum);
        masked_sum(expected, weights.mask, expected_sum);
        const double scale = 7 * columns;  // the masked terms may cancel: compare to their size
        EXPECT_NEAR(to_values(sum)[0], to_values(expected_sum)[0], 1e-5 * std::log(scale) * 7);
      }
    }
  }
}

}  // namespace
}  // namespace phx::kernels
