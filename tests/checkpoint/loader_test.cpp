#include "phalanx/checkpoint/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/memory_source.h"
#include "checkpoint/saved_store.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::CutStore;
using phx::testing::error_of;
using phx::testing::save;
using phx::testing::test_device;
using ::testing::HasSubstr;

TEST(Loader, ALoadThatDoesNotFitNamesEveryTensorAndChangesNothing) {
  const TempFolder folder;
  save(folder.path(), 1, /*seed=*/1);
  const NativeCheckpoint checkpoint(checkpoint_path(folder.path(), 1));
  TensorInfos expected = checkpoint.tensors();
  auto moved = expected.extract("vector.bias");
  moved.key() = "vector.bia";
  expected.insert(std::move(moved));
  expected["table.weight"].shape = {11, 5};
  expected["other"] = {DType::f32, {1}};
  EXPECT_EQ(error_of([&] { check_tensors(checkpoint, expected); }),
            checkpoint.description() +
                " does not fit the model: 2 of 5 tensors do\n"
                "  missing in the file: 2\n    other\n"
                "    vector.bia (the nearest it has is vector.bias)\n"
                "  different: 1\n"
                "    table.weight: the file has F32 [11, 4], the model F32 [11, 5]\n"
                "  not in the model: 1\n    vector.bias");
  CutStore other(test_device(), 5, 0, 1, {.dtype = DType::bf16});
  const auto before = to_values(other.store.weights());
  EXPECT_THAT(error_of([&] { load_parameters(checkpoint, other.store, other.states()); }),
              HasSubstr("the file has F32 [16, 6], the model BF16 [16, 6]"));
  EXPECT_EQ(to_values(other.store.weights()), before);
  load_parameters(checkpoint, other.store, other.states(), {.convert = true});
  CutStore rounded(test_device(), 1, 0, 1, {.dtype = DType::bf16});
  EXPECT_EQ(to_values(other.store.weights()), to_values(rounded.store.weights()))
      << "normals are drawn in f32 and rounded once, as a conversion does";
}

// What a store holds, as a source in memory.
TensorsInMemory in_memory(uint64_t seed) {
  const TempFolder folder;
  save(folder.path(), 1, seed);
  return TensorsInMemory(NativeCheckpoint(checkpoint_path(folder.path(), 1)));
}

TEST(Loader, RanksTakeTheirBoxesWithTheirPitch) {
  const TensorsInMemory source = in_memory(1);
  int64_t bytes = 0;
  for (int rank = 0; rank < 2; ++rank) {
    CutStore loaded(test_device(), 99, rank, 2), truth(test_device(), 1, rank, 2);
    bytes += load_parameters(source, loaded.store, loaded.states()).bytes;
    EXPECT_EQ(to_values(loaded.store.weights()), to_values(truth.store.weights()));
  }
  EXPECT_EQ(bytes, (16 * 6 + 5 * 8 + 11 * 4 + 2 * 7) * 4);  // both have the vector
}

TEST(Loader, TensorsOfOtherPrefixesAreLeftAloneIfTheyAreIgnored) {
  TensorsInMemory source = in_memory(1);
  source.set("optimizer.exp_avg.vector.bias", {DType::f32, {7}}, std::vector<std::byte>(28));
  CutStore loaded(test_device(), 2);
  EXPECT_THAT(error_of([&] { load_parameters(source, loaded.store, loaded.states()); }),
              HasSubstr("not in the model: 1\n    optimizer.exp_avg.vector.bias"));
  EXPECT_EQ(
      load_parameters(source, loaded.store, loaded.states(), {.ignored = {"optimizer."}}).tensors,
      4);
}

TEST(Loader, OfManyNamesFiveAreShownAndTheRestAreCounted) {
  TensorsInMemory source = in_memory(1);
  for (int i = 0; i < 8; ++i)
    source.set(str_cat("x", i), {DType::u8, {1}}, std::vector<std::byte>(1));
  CutStore loaded(test_device(), 2);
  const std::string message =
      error_of([&] { load_parameters(source, loaded.store, loaded.states()); });
  EXPECT_THAT(message, HasSubstr("not in the model: 8\n    x0\n    x1\n    x2\n    x3\n    x4\n"
                                 "    and 3 more"));
}

TEST(Loader, IntegersAreNeverConverted) {
  TensorsInMemory source = in_memory(1);
  source.set("vector.bias", {DType::i32, {7}}, std::vector<std::byte>(28));
  CutStore loaded(test_device(), 2);
  EXPECT_THAT(
      error_of([&] { load_parameters(source, loaded.store, loaded.states(), {.convert = true}); }),
      HasSubstr("vector.bias: the file has I32 [7], the model F32 [7]"));
}

TEST(Loader, ARankOfAPipelineLoadsItsPartWhenTheModelIsAllThere) {
  TensorsInMemory source = in_memory(1);
  source.set("other.stage", {DType::f32, {1}}, std::vector<std::byte>(4));
  CutStore loaded(test_device(), 2), truth(test_device(), 1);
  const LoadReport report =
      load_parameters(source, loaded.store, loaded.states(), {.model = &source.tensors()});
  EXPECT_EQ(report.tensors, 5);
  EXPECT_EQ(to_values(loaded.store.weights()), to_values(truth.store.weights()));
}

// An error in one of the reading threads is the load's.
TEST(Loader, AnErrorOfTheSourceIsTheLoads) {
  class Broken : public TensorsInMemory {
   public:
    using TensorsInMemory::TensorsInMemory;
    void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
      if (name == "table.weight") throw_error("table.weight cannot be read");
      TensorsInMemory::read(name, box, out);
    }
  };
  const Broken source(in_memory(1));
  CutStore loaded(test_device(), 2);
  EXPECT_EQ(error_of([&] { load_parameters(source, loaded.store, loaded.states()); }),
            "table.weight cannot be read");
}

}  // namespace
}  // namespace phx
