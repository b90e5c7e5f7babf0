#include "checkpoint/one_file.h"

#include <gtest/gtest.h>

#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::Seed;
using phx::testing::test_device;

class Model : public Module {
 public:
  Model(const std::vector<RowPiece>& pieces, int64_t local_rows, int64_t columns = 3)
      : weight({.global_shape = {4, columns},
                .local_shape = {local_rows, columns},
                .pieces = pieces_of(pieces, columns),
                .init = Init::normal(1)}) {
    add_parameter("weight", weight);
  }
  Parameter weight;
};

TEST(OneFile, AModelWithAnotherLayoutOfItsMemoryReadsTheSameWeights) {
  const TempFolder folder;
  Model plain({{0, 0, 4}}, 4), shuffled({{2, 0, 2}, {0, 4, 2}}, 6);
  ParameterStore a(plain, test_device(), {.seed = 1}), b(shuffled, test_device(), {.seed = 2});
  const FlatState from{"", a.weights()}, to{"", b.weights()};
  save_checkpoint(folder.path(), 12, a, std::span(&from, 1), {{"note", "hello"}});
  EXPECT_EQ(latest_checkpoint(folder.path()), 12);
  const SafetensorsFile file(checkpoint_file(folder.path(), 12));
  EXPECT_EQ(file.metadata().at("note"), "hello");
  load_checkpoint(file, b, std::span(&to, 1));
  EXPECT_EQ(to_global(plain.weight, plain.weight.value()),
            to_global(shuffled.weight, shuffled.weight.value()));
}

TEST(OneFile, ALoadThatDoesNotFitNamesEveryTensorAndChangesNothing) {
  const TempFolder folder;
  Model saved({{0, 0, 4}}, 4), wider({{0, 0, 4}}, 4, 5);
  ParameterStore a(saved, test_device(), {}), b(wider, test_device(), {});
  const FlatState from{"", a.weights()};
  save_checkpoint(folder.path(), 1, a, std::span(&from, 1), {});
  const auto before = to_values(b.weights());
  const std::vector<FlatState> states = {
      {"", b.weights()},
      {"optimizer.exp_avg.", zeros(b.weights().shape(), DType::f32, test_device())}};
  const std::string message = phx::testing::error_of(
      [&] { load_checkpoint(SafetensorsFile(checkpoint_file(folder.path(), 1)), b, states); });
  EXPECT_NE(message.find("weight: the file has F32 [4, 3], the model F32 [4, 5]"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("optimizer.exp_avg.weight"), std::string::npos) << message;
  EXPECT_EQ(to_values(b.weights()), before);
}

TEST(OneFile, AFolderWithoutACheckpointIsNoCheckpointAndABrokenTrackerIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
  write_file(folder / "latest_checkpointed_iteration.txt", "6abc");
  EXPECT_NE(phx::testing::error_of([&] { latest_checkpoint(folder.path()); }).find("holds '6abc'"),
            std::string::npos);
}

}  // namespace
}  // namespace phx
