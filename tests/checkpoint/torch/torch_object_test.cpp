#include "phalanx/checkpoint/torch/torch_object.h"

#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/torch_file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(TorchObject, JsonComesBackThroughTheFile) {
  const nlohmann::json before = parse_json(
      R"({"numbers": [0, -7, 1099511627776, 2.5], "text": "x", "none": null, "yes": true,
          "inner": {"list": []}})");
  const std::string bytes = saved_object(before);
  const TorchArchive archive(as_bytes(bytes), "x.pt");
  EXPECT_EQ(parse_json(pickle_json(archive.root())), before);
}

TEST(TorchObject, ANamespaceIsAnObjectWithAttributes) {
  const std::string bytes = saved_object({{"args", {{"$namespace", {{"lr", 0.5}}}}}});
  const TorchArchive archive(as_bytes(bytes), "x.pt");
  const PickleValue* args = archive.root().find("args");
  ASSERT_NE(args, nullptr);
  EXPECT_TRUE(args->is_object_of("argparse.Namespace"));
  EXPECT_EQ(args->find("lr")->real, 0.5);
  // Beside other keys the words mean nothing.
  const std::string plain = saved_object({{"$namespace", 1}, {"x", 2}});
  EXPECT_TRUE(TorchArchive(as_bytes(plain), "x.pt").root().is(PickleValue::Kind::dict));
}

TEST(TorchObject, TensorsHaveStoragesOfTheirOwn) {
  const TempFolder folder;
  write_file(folder / "x.pt",
             saved_object({{"a", {{"$tensor", {1.5, -2}}}}, {"b", {{"$tensor", 3}}}}));
  const TorchFile file(folder / "x.pt");
  EXPECT_EQ(file.tensors().at("a"), (TensorInfo{DType::f32, {2}}));
  EXPECT_EQ(file.tensors().at("b"), (TensorInfo{DType::f32, {}}));
  EXPECT_EQ(read_numbers(file, "a"), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(read_numbers(file, "b"), (std::vector<double>{3}));
}

}  // namespace
}  // namespace phx
