#include "phalanx/checkpoint/torch/torch_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/torch_object.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TorchTensor tensor_of(const std::vector<float>& numbers, const Dims& shape) {
  return {{DType::f32, shape}, dense_strides(shape), std::as_bytes(std::span(numbers)), {}};
}

TEST(TorchStates, AFlagIsABooleanThatIsTrue) {
  const nlohmann::json args = parse_json(R"({"yes": true, "no": false, "one": 1, "text": "true"})");
  EXPECT_TRUE(flag_at(args, "yes"));
  for (const char* key : {"no", "one", "text", "absent"}) EXPECT_FALSE(flag_at(args, key)) << key;
}

TEST(TorchStates, AdamsPartLiesInsideTheMixedPrecisionOptimizers) {
  const std::string bytes =
      saved_object({{"mixed", {{"optimizer", {{"state", 1}}}}}, {"plain", {{"state", 2}}}});
  const TorchArchive archive(as_bytes(bytes), "x.pt");
  EXPECT_EQ(inner_optimizer(*archive.root().find("mixed")).find("state")->as_integer(), 1);
  EXPECT_EQ(inner_optimizer(*archive.root().find("plain")).find("state")->as_integer(), 2);
}

TEST(TorchStates, AWeightIsHeldAgainstItsMaster) {
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6}, masters = {1, 2, 3, 4, 5, 7};
  EXPECT_NO_THROW(
      check_master("x.pt", "w", tensor_of(weights, {2, 3}), tensor_of(weights, {2, 3})));
  EXPECT_THAT(error_of([&] {
                check_master("x.pt", "w", tensor_of(weights, {2, 3}), tensor_of(masters, {2, 3}));
              }),
              HasSubstr("x.pt: the fp32 copy of w has 7 where the weight is 6"));
}

// Opening a checkpoint reads the beginning of each tensor only: 1024 elements, whole rows of them.
TEST(TorchStates, OnlyTheBeginningOfALargeTensorIsCompared) {
  const Dims shape = {100, 512};
  std::vector<float> weights(size_t(*num_elements(shape)), 1.0f), masters = weights;
  masters[2 * 512] = 2;  // the first of the third row
  EXPECT_NO_THROW(check_master("x.pt", "w", tensor_of(weights, shape), tensor_of(masters, shape)));
  masters[2 * 512 - 1] = 2;  // the last of the second
  EXPECT_THROW(check_master("x.pt", "w", tensor_of(weights, shape), tensor_of(masters, shape)),
               std::exception);
  EXPECT_NO_THROW(check_master("x.pt", "w", tensor_of({}, {0, 5}), tensor_of({}, {0, 5})));
}

}  // namespace
}  // namespace phx
