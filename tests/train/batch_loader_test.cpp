#include "phalanx/train/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i is i * 10, i * 10 + 1, ..; labels one more. Every second sample ends a document after
// its first token, and has no loss there.
class Tens : public SampleSource {
 public:
  explicit Tens(SampleParts parts) : parts_(parts) {}
  void sample(int64_t index, Sample& out) const override {
    const auto first = int32_t(index * 10);
    const bool two = index % 2 != 0;
    out.tokens = {first, first + 1, first + 2};
    out.labels = {first + 1, first + 2, first + 3};
    if (parts_.loss_mask) out.loss_mask = {uint8_t(!two), 1, 1};
    if (parts_.positions) out.positions = two ? std::vector{0, 0, 1} : std::vector{0, 1, 2};
    if (parts_.cu_seqlens) out.cu_seqlens = two ? std::vector{0, 1, 3} : std::vector{0, 3};
  }
  SampleParts parts() const override { return parts_; }
  std::optional<int64_t> num_samples() const override { return 20; }
  std::string description() const override { return "tens"; }

 private:
  SampleParts parts_;
};

std::vector<int> ints(const Tensor& x) {
  const std::vector<double> values = to_values(x);
  return {values.begin(), values.end()};
}

// Sample i is i * 10 .. i * 10 + 3; of every one the first token has no loss and is a sequence
// alone.
class Fours : public SampleSource {
 public:
  explicit Fours(bool packed) : packed_(packed) {}
  void sample(int64_t index, Sample& out) const override {
    const auto first = int32_t(index * 10);
    out.tokens = {first, first + 1, first + 2, first + 3};
    out.labels = {first + 1, first + 2, first + 3, first + 4};
    out.loss_mask = {0, 1, 1, 1};
    if (packed_) out.positions = {0, 0, 1, 2};
    if (packed_) out.cu_seqlens = {0, 1, 4};
  }
  SampleParts parts() const override {
    return {.loss_mask = true, .positions = packed_, .cu_seqlens = packed_};
  }
  std::optional<int64_t> num_samples() const override { return 20; }
  std::string description() const override { return "fours"; }

 private:
  bool packed_;
};

BatchShape two_by_two() { return {.micro_batch = 2, .num_micro_batches = 2, .seq_length = 3}; }

TEST(BatchLoader, SamplesAreColumns) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchLoader loader(std::make_shared<Tens>(SampleParts{}), two_by_two(), 1000, runtime.device());
  for (const int64_t consumed : {4, 8, 4}) {  // the second was read ahead, the third was not
    loader.load(consumed);
    const Batch batch = loader.micro_batch(1);
    const int a = int(consumed + 2) * 10, b = a + 10;
    EXPECT_THAT(ints(batch.tensors.at("tokens")), ElementsAre(a, b, a + 1, b + 1, a + 2, b + 2));
    EXPECT_THAT(ints(batch.tensors.at("labels")),
                ElementsAre(a + 1, b + 1, a + 2, b + 2, a + 3, b + 3));
    EXPECT_EQ(batch.tensors.at("tokens").shape(), Shape({3, 2}));
    EXPECT_THAT(loader.tokens(), ElementsAre(6, 6));
    EXPECT_EQ(loader.samples(1).first, consumed + 2);
    EXPECT_FALSE(batch.tensors.has("positions") || batch.packed.cu_seqlens.defined());
  }
}

TEST(BatchLoader, LabelsWithoutLossAreIgnoredAndNotCounted) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchLoader loader(std::make_shared<Tens>(SampleParts{.loss_mask = true, .positions = true}),
                     two_by_two(), 1000, runtime.device());
  loader.load(0);
  const Batch batch = loader.micro_batch(0);
  EXPECT_THAT(ints(batch.tensors.at("labels")), ElementsAre(1, -100, 2, 12, 3, 13));
  EXPECT_THAT(ints(batch.tensors.at("positions")), ElementsAre(0, 0, 1, 0, 2, 1));
  EXPECT_THAT(loader.tokens(), ElementsAre(5, 5));
}

TEST(BatchLoader, RanksThatShareSequencesHaveAnEarlyAndALateChunkOfThem) {
  Runtime runtime({.kind = DeviceKind::cpu});
  for (const int64_t rank : {0, 1}) {
    BatchLoader loader(std::make_shared<Fours>(false),
                       {.micro_batch = 2,
                        .num_micro_batches = 1,
                        .seq_length = 4,
                        .ahead = 1,
                        .cut = {.ranks = 2, .rank = rank}},
                       1000, runtime.device());
    loader.load(0);
    const Batch batch = loader.micro_batch(0);
    const auto of = [&](const char* name) { return ints(batch.tensors.at(name)); };
    EXPECT_EQ(batch.tensors.at("tokens").shape(), Shape({2, 2}));
    EXPECT_EQ(of("tokens"), rank == 0 ? (std::vector{0, 10, 3, 13}) : (std::vector{1, 11, 2, 12}));
    EXPECT_EQ(of("labels"),
              rank == 0 ? (std::vector{-100, -100, 4, 14}) : (std::vector{2, 12, 3, 13}));
    // What comes next may be another rank's.
    EXPECT_EQ(of("tokens.1"), rank == 0 ? (std::vector{1, 11, 0, 0}) : (std::vector{2, 12, 3, 13}));
    EXPECT_THAT(loader.tokens(), ElementsAre(6)) << "all that count, whoever has them";
    EXPECT_THAT(batch.counted, ElementsAre(6, 6));
    EXPECT_EQ(loader.squared_lengths(), 2 * 4 * 4);
  }
}

TEST(BatchLoader, RanksCutARowOfPackedSequencesWhereverTheyBegin) {
  Runtime runtime({.kind = DeviceKind::cpu});
  for (const int64_t rank : {0, 1}) {
    BatchLoader loader(std::make_shared<Fours>(true),
                       {.micro_batch = 2,
                        .num_micro_batches = 1,
                        .seq_length = 4,
                        .cut = {.ranks = 2, .rank = rank}},
                       1000, runtime.device());
    loader.load(0);
    const Batch batch = loader.micro_batch(0);
    const auto of = [&](const char* name) { return ints(batch.tensors.at(name)); };
    EXPECT_EQ(batch.tensors.at("tokens").shape(), Shape({4, 1}));
    EXPECT_EQ(of("tokens"), rank == 0 ? (std::vector{0, 1, 12, 13}) : (std::vector{2, 3, 10, 11}));
    EXPECT_EQ(of("positions"), rank == 0 ? (std::vector{0, 0, 1, 2}) : (std::vector{1, 2, 0, 0}));
    const std::vector<int> ends = ints(batch.packed.cu_seqlens);
    EXPECT_EQ(std::vector(ends.begin(), ends.begin() + 6), (std::vector{0, 1, 4, 5, 8, 8}))
        << "of the whole row";
    EXPECT_EQ(batch.packed.max_seqlen, 4);
  }
}

TEST(BatchLoader, PackedSamplesLieInOneRow) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchLoader loader(std::make_shared<Tens>(SampleParts{.positions = true, .cu_seqlens = true}),
                     two_by_two(), 1000, runtime.device());
  loader.load(0);
  const Batch batch = loader.micro_batch(0);
  EXPECT_EQ(batch.tensors.at("tokens").shape(), Shape({6, 1}));
  EXPECT_THAT(ints(batch.tensors.at("tokens")), ElementsAre(0, 1, 2, 10, 11, 12));
  EXPECT_THAT(ints(batch.tensors.at("positions")), ElementsAre(0, 1, 2, 0, 0, 1));
  // As many as there can be: the rest are empty.
  EXPECT_THAT(ints(batch.packed.cu_seqlens), ElementsAre(0, 3, 4, 6, 6, 6, 6));
  EXPECT_EQ(batch.packed.max_seqlen, 3);
}

TEST(BatchLoader, TokensAheadAreMovedWithinTheirSequence) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchShape shape = two_by_two();
  shape.ahead = 2;
  const auto load = [&](const SampleParts& parts) {
    BatchLoader loader(std::make_shared<Tens>(parts), shape, 1000, runtime.device());
    loader.load(0);
    return loader.micro_batch(0);
  };
  const Batch plain = load({});
  EXPECT_THAT(ints(plain.tensors.at("tokens.1")), ElementsAre(1, 11, 2, 12, 0, 0));
  EXPECT_THAT(ints(plain.tensors.at("labels.1")), ElementsAre(2, 12, 3, 13, -100, -100));
  EXPECT_THAT(ints(plain.tensors.at("tokens.2")), ElementsAre(2, 12, 0, 0, 0, 0));
  EXPECT_THAT(ints(plain.tensors.at("labels.2")), ElementsAre(3, 13, -100, -100, -100, -100));
  EXPECT_THAT(plain.counted, ElementsAre(6, 4, 2));
  // A label that does not count does not count from further away either.
  const Batch masked = load({.loss_mask = true, .positions = true});
  EXPECT_THAT(ints(masked.tensors.at("labels")), ElementsAre(1, -100, 2, 12, 3, 13));
  EXPECT_THAT(ints(masked.tensors.at("labels.1")), ElementsAre(2, 12, 3, 13, -100, -100));
  EXPECT_THAT(ints(masked.tensors.at("positions.1")), ElementsAre(1, 0, 2, 1, 0, 0));
  EXPECT_THAT(masked.counted, ElementsAre(5, 4, 2));
  // Packed, nothing comes from the next sequence: they have 3, 1 and 2 tokens.
  const Batch packed = load({.positions = true, .cu_seqlens = true});
  EXPECT_EQ(packed.tensors.at("tokens.1").shape(), Shape({6, 1}));
  EXPECT_THAT(ints(packed.tensors.at("tokens.1")), ElementsAre(1, 2, 0, 0, 12, 0));
  EXPECT_THAT(ints(packed.tensors.at("labels.1")), ElementsAre(2, 3, -100, -100, 13, -100));
  EXPECT_THAT(ints(packed.tensors.at("positions.1")), ElementsAre(1, 2, 0, 0, 1, 0));
  EXPECT_THAT(ints(packed.tensors.at("labels.2")), ElementsAre(3, -100, -100, -100, -100, -100));
  EXPECT_THAT(packed.counted, ElementsAre(6, 3, 1));
  EXPECT_THAT(ints(packed.packed.cu_seqlens), ElementsAre(0, 3, 4, 6, 6, 6, 6));
}

// What MFU is measured by: documents of 3, 1 and 2 tokens in the micro-batch above.
TEST(BatchLoader, DocumentsOfAPackedSampleAreSquaredEachByItself) {
  Runtime runtime({.kind = DeviceKind::cpu});
  const auto squared = [&](const SampleParts& parts, BatchShape shape) {
    BatchLoader loader(std::make_shared<Tens>(parts), shape, 1000, runtime.device());
    loader.load(0);
    return loader.squared_lengths();
  };
  BatchShape one = two_by_two();
  one.num_micro_batches = 1;
  EXPECT_EQ(squared({.positions = true, .cu_seqlens = true}, one), 3 * 3 + 1 * 1 + 2 * 2);
  EXPECT_EQ(squared({}, one), 2 * 3 * 3) << "two samples of three tokens";
  EXPECT_EQ(squared({}, two_by_two()), 4 * 3 * 3);
  one.reads = false;
  EXPECT_EQ(squared({}, one), 2 * 3 * 3) << "of a rank that reads nothing";
}

TEST(BatchLoader, ARankTakesItsMicroBatches) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchShape shape = two_by_two();
  shape.data_ranks = 3;
  shape.data_rank = 1;
  BatchLoader loader(std::make_shared<Tens>(SampleParts{}), shape, 1000, runtime.device());
  loader.load(0);
  EXPECT_THAT(ints(loader.micro_batch(0).tensors.at("tokens")),
              ElementsAre(20, 30, 21, 31, 22, 32));
  EXPECT_THAT(ints(loader.micro_batch(1).tensors.at("tokens")),
              ElementsAre(80, 90, 81, 91, 82, 92));
}

TEST(BatchLoader, SamplesHaveTheirPlaceAmongAllOfTheRun) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchShape shape = two_by_two();
  shape.data_ranks = 3;
  shape.data_rank = 1;
  const auto place = [&](const SampleParts& parts, const BatchOrder::Options& order) {
    BatchLoader loader(std::make_shared<Tens>(parts), shape, 1000, runtime.device(), order);
    loader.load(12);
    const SamplePlace samples = loader.samples(1);
    return std::vector{samples.first, samples.stride, samples.tokens};
  };
  EXPECT_THAT(place({}, {}), ElementsAre(12 + 6 + 2, 1, 0));
  EXPECT_THAT(place({.positions = true, .cu_seqlens = true}, {}), ElementsAre(20, 1, 3));
  // Without shards the ranks take turns.
  EXPECT_THAT(place({}, {.type = DataloaderType::cyclic, .data_sharding = false}),
              ElementsAre(12 + 6 + 1, 3, 0));
}

TEST(BatchLoader, CyclicBatchesComeInMegatronsOrder) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchLoader loader(std::make_shared<Tens>(SampleParts{}), two_by_two(), 1000, runtime.device(),
                     {.type = DataloaderType::cyclic});
  std::vector<int> seen;
  for (int64_t consumed = 0; consumed < 24; consumed += 4) {  // 20 are an epoch
    loader.load(consumed);
    for (int64_t k = 0; k < 2; ++k)
      for (const int64_t column : {0, 1})
        seen.push_back(ints(loader.micro_batch(k).tensors.at("tokens"))[size_t(column)] / 10);
  }
  // torch.randperm(20) of seed 0, then of seed 1
  EXPECT_THAT(seen, ElementsAre(4, 5, 13, 19, 7, 14, 3, 6, 9, 17, 11, 2, 16, 18, 10, 12, 15, 8, 1,
                                0, 5, 13, 2, 11));
}

TEST(BatchLoader, ATokenOutsideOfTheVocabularyIsNamed) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchLoader loader(std::make_shared<Tens>(SampleParts{}), two_by_two(), 12, runtime.device());
  EXPECT_THAT(error_of([&] { loader.load(0); }),
              HasSubstr("label 1 of sample 1 is 12, outside of the vocabulary of 12"));
}

TEST(BatchLoader, ARankThatReadsNothingCannotKnowMasks) {
  Runtime runtime({.kind = DeviceKind::cpu});
  BatchShape shape = two_by_two();
  shape.reads = false;
  EXPECT_ANY_THROW(BatchLoader(std::make_shared<Tens>(SampleParts{.loss_mask = true}), shape, 1000,
                               runtime.device()));
}

}  // namespace
}  // namespace phx
