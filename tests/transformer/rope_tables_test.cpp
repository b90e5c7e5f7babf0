#include "phalanx/transformer/rope_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

using Values = std::vector<double>;

// Two heads of 2: one query, one key; then a value. [s, 1, 6]
TransformerConfig two_wide() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 2;
  config.num_attention_heads = 1;
  config.kv_channels = 2;
  config.seq_length = config.max_position_embeddings = 8;
  config.vocab_size = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  return config;
}

Tensor three_rows() {
  const Values row = {1, 0, 0, 1, 5, 7};
  Values all;
  for (int i = 0; i < 3; ++i) all.insert(all.end(), row.begin(), row.end());
  return from_values(all, {3, 1, 6}, DType::f64, test_device());
}

void expect_values(const Tensor& got, const Values& expected) {
  const Values values = to_values(got);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-14) << i;
}

// The row of position p: (1, 0) and (0, 1) turned by p radians, the value as it was.
Values turned(double p) { return {std::cos(p), std::sin(p), -std::sin(p), std::cos(p), 5, 7}; }

TEST(RopeTables, QueriesAndKeysTurnByTheirPositionAndValuesDoNot) {
  const RopeTables tables(two_wide(), /*heads=*/2, 8, DType::f64, test_device());
  const Tensor y = tables.apply(three_rows(), 0, {});
  for (int64_t i = 0; i < 3; ++i) expect_values(y.rows(i, 1), turned(double(i)));
}

TEST(RopeTables, PositionsMayBeginElsewhereOrBeGiven) {
  const RopeTables tables(two_wide(), 2, 8, DType::f64, test_device());
  expect_values(tables.apply(three_rows(), 0, {.offset = 4}).rows(1, 1), turned(5));
  const int64_t given[] = {6, 0, 3};
  const Tensor positions = from_ints(given, {3, 1}, DType::i32, test_device());  // [s, b]
  const Tensor y = tables.apply(three_rows(), 1, {.positions = positions});
  expect_values(y.rows(0, 1), turned(6));
  expect_values(y.rows(2, 1), turned(3));
}

TEST(RopeTables, AStretchedContextTurnsSlower) {
  TransformerConfig config = two_wide();
  config.rotary_seq_len_interpolation_factor = 4;
  const RopeTables tables(config, 2, 8, DType::f64, test_device());
  expect_values(tables.apply(three_rows(), 0, {}).rows(2, 1), turned(0.5));
}

}  // namespace
}  // namespace phx
