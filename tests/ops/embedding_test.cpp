#include "phalanx/ops/embedding.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Function embed(const EmbeddingOptions& options = {}) {
  return [options](std::span<const Tensor> in) { return embedding(in[0], in[1], options); };
}

TEST(Embedding, TakesTheNamedRows) {
  const Tensor table =
      from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2}, DType::f64, test_device());
  const Tensor ids = from_ints(std::vector<int64_t>{2, 0, 2, 1}, {2, 2}, DType::i32, test_device());
  const Tensor y = embedding(table, ids, {.scale = 10});
  EXPECT_EQ(y.shape(), Shape({2, 2, 2}));
  EXPECT_EQ(to_values(y), (std::vector<double>{50, 60, 10, 20, 50, 60, 30, 40}));
}

TEST(Embedding, GradientsMatchFiniteDifferences) {
  for (DType dtype : {DType::i64, DType::i32}) {  // 14 ids of 9 rows: some twice, some never
    expect_gradients_match(embed({.scale = 3}),
                           {randn({9, 5}, Seed{1}), rand_ints({7, 2}, 9, Seed{2}, dtype)});
  }
}

TEST(Embedding, RowsOfSeveralRanksAddUpToTheWhole) {
  const Tensor table = randn({9, 5}, Seed{1});
  const Tensor ids = rand_ints({7, 2}, 9, Seed{2});
  const auto whole = gradients_of(embed(), std::vector<Tensor>{table, ids});
  std::vector<double> sum(14 * 5, 0.0);
  for (int64_t first : {0, 3, 6}) {
    const Tensor part = table.rows(first, 3);
    const auto piece =
        gradients_of(embed({.first_row = first, .vocabulary = 9}), std::vector<Tensor>{part, ids});
    const auto values = to_values(piece.output);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
    expect_close(piece.inputs[0], whole.inputs[0].rows(first, 3), 0);
  }
  EXPECT_EQ(sum, to_values(whole.output));
}

PHX_CUDA_TEST(Embedding, CudaBackwardAddsToTheSinkInOneRounding) {
  const Device device = cuda_test_runtime().device();
  const Tensor ids = from_ints(std::vector<int64_t>(256, 1), {256}, DType::i64, device);
  const Tensor dy = from_values(std::vector<double>(256, 1.0 / 512), {256, 1}, DType::bf16, device);
  for (float beta : {0.f, 1.f}) {
    const Tensor dtable = from_values(std::vector<double>{7, 1, 8}, {3, 1}, DType::f32, device);
    kernels::embedding_backward(ids, dy, {}, {dtable, beta});
    EXPECT_EQ(to_values(dtable),
              beta == 0.f ? (std::vector<double>{0, 0.5, 0}) : (std::vector<double>{7, 1.5, 8}));
  }
}

TEST(Embedding, BackwardAddsToTheSinkInOneRounding) {
  // 1 + 256 times 2^-9 in bf16: added one by one nothing would ever arrive.
  const Tensor ids = from_ints(std::vector<int64_t>(256, 1), {256}, DType::i64, test_device());
  const Tensor dy =
      from_values(std::vector<double>(256, 1.0 / 512), {256, 1}, DType::bf16, test_device());
  for (float beta : {0.f, 1.f}) {
    const Tensor dtable =
        from_values(std::vector<double>{7, 1, 8}, {3, 1}, DType::bf16, test_device());
    kernels::embedding_backward(ids, dy, {}, {dtable, beta});
    EXPECT_EQ(to_values(dtable),
              beta == 0.f ? (std::vector<double>{0, 0.5, 0}) : (std::vector<double>{7, 1.5, 8}));
  }
}

TEST(Embedding, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    gradients_of(embed(), std::vector<Tensor>{empty({50, 24}, DType::f32, device),
                                              device.kind() == DeviceKind::meta
                                                  ? empty({33, 2}, DType::i64, device)
                                                  : zeros({33, 2}, DType::i64, device)});
  });
}

PHX_CUDA_TEST(Embedding, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (int64_t h : {7, 64, 1000}) {
      for (int64_t rows : {3, 50, 5000}) {
        // The same additions in the same order, so at most the rounding of fused scale and sum.
        const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
        expect_cuda_matches_cpu(
            embed({.scale = 1.5}),
            {randn({rows, h}, Seed{1}, dtype), rand_ints({211, 3}, rows, Seed{2})}, tolerance);
        expect_cuda_matches_cpu(
            embed({.first_row = rows, .vocabulary = 3 * rows}),
            {randn({rows, h}, Seed{1}, dtype), rand_ints({211, 3}, 3 * rows, Seed{2}, DType::i32)},
            tolerance);
      }
    }
  }
}

TEST(Embedding, RefusesAnIdOutsideOfTheVocabulary) {
  const Tensor ids = from_ints(std::vector<int64_t>{0, 1, 2, 9}, {2, 2}, DType::i64, test_device());
  EXPECT_EQ(error_of([&] {
              embedding(randn({9, 4}, Seed{1}), ids);
            }),
            "embedding: id 9 at position 3 of [2, 2] is outside of the vocabulary of 9");
}

}  // namespace
}  // namespace phx
