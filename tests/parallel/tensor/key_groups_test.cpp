#include "phalanx/parallel/tensor/key_groups.h"

#include <gtest/gtest.h>

#include "parallel/tensor/on_ranks.h"
#include "phalanx/core/segment.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(KeyGroups, SharersPutTheirSlicesTogetherAndSumTheirGradients) {
  const int64_t q = 4, d = 6;
  on_ranks(2, false, [&](const TensorParallel& tp, Device device) {
    // The whole key and value, and what rank r's queries send back.
    const Tensor kv = randn({3, 2, 2 * d}, Seed{1}, DType::f64, device);  // k | v
    const Tensor queries = randn({3, 2, q}, Seed{uint64_t(10 + tp.rank())}, DType::f64, device);
    Tensor part = empty({3, 2, q + d}, DType::f64, device);
    copy_columns(queries, 0, q, part, 0);
    copy_columns(kv, tp.rank() * d / 2, d / 2, part, q);
    copy_columns(kv, d + tp.rank() * d / 2, d / 2, part, q + d / 2);
    Segment got(std::span(&part, 1),
                [&](auto in) { return std::vector{gather_key_group(in[0], q, d, *tp.group)}; });
    expect_close(columns(got.outputs()[0], 0, q), queries, 0);
    expect_close(columns(got.outputs()[0], q, 2 * d), kv, 0);

    Tensor summed = zeros({3, 2, q + 2 * d}, DType::f64, device);
    std::vector<Tensor> dys;
    for (int r = 0; r < 2; ++r)
      dys.push_back(randn({3, 2, q + 2 * d}, Seed{uint64_t(20 + r)}, DType::f64, device));
    const auto a = to_values(dys[0]), b = to_values(dys[1]);
    std::vector<double> sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
    summed = from_values(sum, summed.shape(), DType::f64, device);
    const Tensor dpart = got.backward(std::span(&dys[size_t(tp.rank())], 1))[0];
    expect_close(columns(dpart, 0, q), columns(dys[size_t(tp.rank())], 0, q), 0);
    expect_close(columns(dpart, q, d / 2), columns(summed, q + tp.rank() * d / 2, d / 2), kClose);
    expect_close(columns(dpart, q + d / 2, d / 2),
                 columns(summed, q + d + tp.rank() * d / 2, d / 2), kClose);
  });
}

TEST(KeyGroups, APartOfAnotherSizeIsRefused) {
  on_ranks(2, false, [](const TensorParallel& tp, Device device) {
    const Tensor part = zeros({3, 2, 9}, DType::f64, device);
    EXPECT_EQ(
        error_of([&] { gather_key_group(part, 4, 6, *tp.group); }),
        "gather_key_group: 2 ranks share a key head of 6, so a part should be [s, b, 10], but "
        "it is [3, 2, 9]");
  });
}

}  // namespace
}  // namespace phx
