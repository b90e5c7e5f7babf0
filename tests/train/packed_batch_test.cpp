// Documents side by side in one row are trained on as each by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "phalanx/base/distance.h"
#include "support/gradients.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Document {
  std::vector<int64_t> tokens, labels;
};

Document document(int64_t length, int64_t seed) {
  Document made;
  for (int64_t i = 0; i < length; ++i) {
    made.tokens.push_back((i * 7 + seed) % 61);
    made.labels.push_back(i % 5 == 4 ? -100 : (i * 11 + 3 * seed) % 61);
  }
  return made;
}

RunConfig exact_run() {
  RunConfig config = tiny_run();
  config.train.fp64 = true;
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  config.model.seq_length = 24;
  config.train.micro_batch_size = 1;
  return config;
}

int64_t counted(const Document& document) {
  return std::ranges::count_if(document.labels, [](int64_t label) { return label != -100; });
}

struct Outcome {
  double loss;
  std::vector<double> gradients;
};

Outcome run(const RunConfig& config, const std::vector<Document>& documents, bool packed,
            DeviceKind kind = DeviceKind::cpu) {
  Runtime runtime({.kind = kind, .threads = 2});
  Session session(config, runtime.device());
  const Device device = runtime.device();
  std::vector<Batch> batches;
  Document all;
  std::vector<int64_t> positions, ends = {0};
  int64_t longest = 0;
  for (const Document& one : documents) {
    const auto length = int64_t(one.tokens.size());
    batches.push_back(
        {.tensors = {{"tokens", from_ints(one.tokens, {length, 1}, DType::i64, device)},
                     {"labels", from_ints(one.labels, {length, 1}, DType::i64, device)}}});
    all.tokens.insert(all.tokens.end(), one.tokens.begin(), one.tokens.end());
    all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
    for (int64_t i = 0; i < length; ++i) positions.push_back(i);
    ends.push_back(int64_t(all.tokens.size()));
    longest = std::max(longest, length);
  }
  const auto total = int64_t(all.tokens.size());
  // Empty sequences at the end fill the list up.
  for (int i = 0; i < 5; ++i) ends.push_back(total);
  const auto count = int64_t(ends.size());
  if (packed)
    batches = {{.tensors = {{"tokens", from_ints(all.tokens, {total, 1}, DType::i64, device)},
                            {"labels", from_ints(all.labels, {total, 1}, DType::i64, device)},
                            {"positions", from_ints(positions, {total, 1}, DType::i32, device)}},
                .packed = {.cu_seqlens = from_ints(ends, {count}, DType::i32, device),
                           .max_seqlen = longest}}};
  std::vector<int64_t> counts;
  for (const Document& one : documents) counts.push_back(counted(one));
  if (packed) counts = {counted(all)};
  session.step.run(batches, counts, 0, {.lr = 0});
  const StepResults results = session.step.collect();
  return {results.loss_sum / results.tokens, to_values(session.store.gradients())};
}

// `roundings`: how far sums may be apart, of the largest gradient.
void expect_near(const Outcome& packed, const Outcome& apart, double roundings) {
  EXPECT_NEAR(packed.loss, apart.loss, roundings / 10 * apart.loss);
  EXPECT_LT(relative_error(packed.gradients, apart.gradients), roundings);
  const auto is_zero = [](double gradient) { return gradient == 0; };
  EXPECT_FALSE(std::ranges::all_of(apart.gradients, is_zero));
}

std::vector<Document> three_documents() {
  return {document(9, 1), document(1, 2), document(14, 3)};
}

void expect_the_same(const RunConfig& config) {
  // Sums of doubles in another order: some thousand roundings of 1e-16.
  expect_near(run(config, three_documents(), true), run(config, three_documents(), false), 1e-12);
}

TEST(PackedBatch, RotaryPositionsBeginAnewInEveryDocument) { expect_the_same(exact_run()); }

// Where documents do not see each other, a rotation that went on from one to the next would change
// nothing: only distances count. So the distances change here: every second position on a table
// that is stretched by two is every position on the table itself.
TEST(PackedBatch, RotaryPositionsAreThoseOfTheBatch) {
  const auto loss = [](double stretch, int64_t step) {
    RunConfig config = exact_run();
    config.model.rotary_seq_len_interpolation_factor = stretch;
    Runtime runtime({.threads = 2});
    Session session(config, runtime.device());
    const Device device = runtime.device();
    const Document one = document(12, 1);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < 12; ++i) positions.push_back(i * step);
    const std::vector<Batch> batches = {
        {.tensors = {{"tokens", from_ints(one.tokens, {12, 1}, DType::i64, device)},
                     {"labels", from_ints(one.labels, {12, 1}, DType::i64, device)},
                     {"positions", from_ints(positions, {12, 1}, DType::i32, device)}}}};
    const std::vector<int64_t> counts = {counted(one)};
    session.step.run(batches, counts, 0, {.lr = 0});
    return session.step.collect().loss_sum;
  };
  EXPECT_NEAR(loss(2, 2), loss(1, 1), 1e-12 * loss(1, 1));
  EXPECT_GT(std::abs(loss(1, 2) - loss(1, 1)), 1e-6 * loss(1, 1)) << "positions change nothing";
}

TEST(PackedBatch, LearnedPositionsBeginAnewInEveryDocument) {
  RunConfig config = exact_run();
  config.model.position_embedding_type = PositionEmbedding::learned_absolute;
  expect_the_same(config);
}

TEST(PackedBatch, AttentionIsRecomputedWithTheSameSequences) {
  RunConfig config = exact_run();
  config.train.recompute_granularity = RecomputeGranularity::selective;
  config.train.recompute_modules = {"core_attn", "mlp"};
  expect_the_same(config);
  config.train.recompute_granularity = RecomputeGranularity::full;
  config.train.recompute_method = RecomputeMethod::uniform;
  config.train.recompute_num_layers = 1;
  config.train.recompute_modules = {};
  expect_the_same(config);
}

PHX_CUDA_TEST(PackedBatch, CudaFollowsTheCpu) {
  for (const auto positions : {PositionEmbedding::rope, PositionEmbedding::learned_absolute}) {
    RunConfig config = exact_run();
    config.train.fp64 = false;
    config.model.position_embedding_type = positions;
    // Sums of floats in another order: some hundred roundings of 6e-8.
    expect_near(run(config, three_documents(), true, DeviceKind::cuda),
                run(config, three_documents(), false), 2e-5);
  }
}

}  // namespace
}  // namespace phx
