#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch/legacy_fixture.h"
#include "phalanx/checkpoint/torch/torch_object.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TorchFlatStates : public ChangedFolder {};

TEST_F(TorchFlatStates, AMissingFileOfTheDistributedOptimizerIsNamed) {
  const Path path = copy("gpt2_1p_buckets");
  std::filesystem::remove(path / "mp_rank_00/distrib_optim.pt");
  EXPECT_THAT(why(path), AllOf(HasSubstr("was saved with --use-distributed-optimizer"),
                               HasSubstr("no distrib_optim.pt")));
}

TEST_F(TorchFlatStates, StateOfAnotherModelIsRefusedByItsLength) {
  const Path path = copy("gpt2_1p_buckets");
  std::filesystem::copy_file(legacy("gpt2_vpp2_do") / "mp_rank_00_000/distrib_optim.pt",
                             path / "mp_rank_00/distrib_optim.pt",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(why(path), HasSubstr("for the model's parameters, but is F32 ["));
}

TEST_F(TorchFlatStates, OtherFormsOfTheFileAreRefused) {
  const Path path = copy("gpt2_1p_buckets"), file = path / "mp_rank_00/distrib_optim.pt";
  write_file(file, saved_object(nlohmann::json::array({1})));
  EXPECT_THAT(why(path), HasSubstr("is a list of 1 instead of one optimizer's state"));
  write_file(file, saved_object({{"shard", 1}}));
  EXPECT_THAT(why(path), AllOf(HasSubstr("of the form before February 2024"),
                               HasSubstr("--ckpt-convert-update-legacy-dist-opt-format")));
  write_file(file, saved_object({{"buckets_coalesced", true}}));
  EXPECT_THAT(why(path), HasSubstr("should hold buffer 0 of the model's parameters"));
}

// The moments of a parameter lie in the buffer where its master does.
TEST_F(TorchFlatStates, EveryParameterHasAPartOfEachFlatTensor) {
  const TorchFolder folder(legacy("gpt2_1p_buckets"));
  ASSERT_EQ(folder.why_no_optimizer(), "");
  size_t parameters = 0;
  for (const auto& [name, info] : folder.tensors()) {
    if (!is_weight(name)) continue;
    ++parameters;
    for (const char* state : {"optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
      ASSERT_TRUE(folder.tensors().contains(state + name)) << state << name;
      EXPECT_EQ(folder.tensors().at(state + name), (TensorInfo{DType::f32, info.shape}));
    }
  }
  EXPECT_GT(parameters, 10u);
}

}  // namespace
}  // namespace phx
