#include "phalanx/checkpoint/torch/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/torch/torch_saved.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/torch_file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(TorchArchive, TensorsWithAttributesAreTensors) {
  const TempFolder folder;
  write_file(folder / "x.pt", attributed_file("_rebuild_tensor_v2", "Tensor"));
  EXPECT_EQ(read_numbers(TorchFile(folder / "x.pt"), "x"), (std::vector<double>{3, 5}));
  // Other functions and classes that a file may mention make none.
  for (const auto& [function, type] :
       {std::pair("_rebuild_parameter", "Tensor"), std::pair("_rebuild_tensor_v2", "Size")}) {
    const std::string bytes = attributed_file(function, type);
    const TorchArchive archive(as_bytes(bytes), "x.pt");
    EXPECT_TRUE(archive.tensors(archive.root()).empty()) << function << " " << type;
  }
}

TEST(TorchArchive, ATensorOfOneElementIsANumber) {
  const std::string bytes = read_file(torch_fixture("plain.pt"));
  const TorchArchive archive(as_bytes(bytes), "plain.pt");
  EXPECT_EQ(archive.number(*archive.root().find("scalar")), fixture_value("scalar", 0));
  EXPECT_EQ(archive.number(*archive.root().find("step")), 17);
  EXPECT_EQ(archive.number(*archive.root().find("weight")), std::nullopt);
  const auto json = nlohmann::json::parse(pickle_json(archive.root(), archive));
  EXPECT_EQ(json["scalar"], fixture_value("scalar", 0));
  EXPECT_TRUE(json["weight"].is_null());
}

std::string error_of_tensor(const std::string& bytes) {
  return error_of([&] {
    const TorchArchive archive(as_bytes(bytes), "x.pt");
    archive.tensors(archive.root());
  });
}

TEST(TorchArchive, TensorsBeyondTheirStorageAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_THAT(error_of_tensor(tensor_file({2, 4}, {4, 1}, 0)),
              HasSubstr("x.pt: the tensor x reaches beyond its storage of 24 bytes"));
  EXPECT_THAT(error_of_tensor(tensor_file({6}, {1}, 1)), HasSubstr("reaches beyond"));
  EXPECT_THAT(error_of_tensor(tensor_file({2}, {kHuge}, kHuge)), HasSubstr("reaches beyond"));
  EXPECT_THAT(error_of_tensor(tensor_file({kHuge, kHuge}, {0, 0}, 0)), HasSubstr("too large"));
  EXPECT_THAT(error_of_tensor(tensor_file({6}, {-1}, 0)), HasSubstr("no valid offset, sizes"));
  EXPECT_THAT(error_of_tensor(tensor_file({6}, {1}, -1)), HasSubstr("no valid offset, sizes"));
  EXPECT_THAT(error_of_tensor(tensor_file({6}, {1, 1}, 0)), HasSubstr("no valid offset, sizes"));
  EXPECT_THAT(error_of_tensor(tensor_file({6}, {1}, 0, "FloatStorage", "7")),
              HasSubstr("the storage the text '7' of the tensor x is not in the file"));
  EXPECT_THAT(error_of_tensor(tensor_file({6}, {1}, 0, "ShortStorage")),
              HasSubstr("is of the type torch.ShortStorage, which is not supported"));
}

TEST(TorchArchive, TypesHaveTheNamesOfTorch) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    EXPECT_EQ(dtype_of_torch(torch_names(dtype).dtype), dtype);
    EXPECT_EQ(dtype_of_torch(torch_names(dtype).storage), dtype);
  }
  EXPECT_EQ(dtype_of_torch("bool"), DType::u8);
  EXPECT_EQ(dtype_of_torch("int16"), std::nullopt);
  EXPECT_EQ(error_of([] { torch_names(DType::u16); }),
            "tensors of u16 are not written to PyTorch's files: older versions cannot read them");
}

TEST(TorchArchive, TheFilesByteOrderIsLittleEndian) {
  std::string bytes;
  ZipWriter zip([&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  PickleWriter writer;
  writer.none();
  zip.add("a/data.pkl", as_bytes(writer.finish()));
  zip.add("a/byteorder", as_bytes("big"));
  zip.finish();
  EXPECT_EQ(error_of([&] { TorchArchive(as_bytes(bytes), "x.pt"); }),
            "x.pt has the byte order 'big'; only little-endian files are read");
}

TEST(TorchArchive, AnArchiveHasOneObject) {
  const auto with = [](const std::vector<std::string>& names) {
    std::string bytes;
    ZipWriter zip([&](std::span<const std::byte> part) {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    PickleWriter writer;
    writer.none();
    for (const std::string& name : names) zip.add(name, as_bytes(writer.finish()));
    zip.finish();
    return error_of([&] { TorchArchive(as_bytes(bytes), "x.pt"); });
  };
  EXPECT_EQ(with({"a/other"}), "x.pt is a zip archive without data.pkl: not a file of torch.save");
  EXPECT_EQ(with({"a/data.pkl", "b/data.pkl"}), "x.pt has two objects: b/data.pkl and a/data.pkl");
}

TEST(TorchArchive, SizesAreTuplesListsAndTorchSizes) {
  PickleWriter writer;
  writer.list([&] {
    writer.integers(std::vector<int64_t>{2, 3});
    writer.size(std::vector<int64_t>{4});
    writer.integers(std::vector<int64_t>{-1});
    writer.text("x");
  });
  const std::string bytes = writer.finish();
  const PickleTree tree(as_bytes(bytes), "x.pt");
  EXPECT_EQ(dims_of(tree.root().items[0]), (Dims{2, 3}));
  EXPECT_EQ(dims_of(tree.root().items[1]), Dims{4});
  EXPECT_EQ(dims_of(tree.root().items[2]), std::nullopt);
  EXPECT_EQ(dims_of(tree.root().items[3]), std::nullopt);
  EXPECT_EQ(dims_of(nullptr), std::nullopt);
}

}  // namespace
}  // namespace phx
