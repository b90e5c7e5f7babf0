#include "phalanx/checkpoint/torch/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names_of(const TensorSource& source) {
  std::vector<std::string> names;
  for (const auto& [name, info] : source.tensors()) names.push_back(name);
  return names;
}

class TorchFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchFiles, HoldWhatTorchSaved) {
  const TorchFile file(torch_fixture(GetParam()));
  EXPECT_THAT(names_of(file), ::testing::ElementsAre("brain", "columns", "double", "empty", "half",
                                                     "inner.deep.leaf", "long", "mask", "parameter",
                                                     "rows", "scalar", "transposed", "weight"));
  for (const char* name : {"weight", "half", "brain", "double", "long", "scalar", "parameter"})
    expect_fixture(file, name, name);
  expect_fixture(file, "inner.deep.leaf", "inner.deep.leaf");
  EXPECT_EQ(file.tensors().at("brain").dtype, DType::bf16);
  EXPECT_EQ(file.tensors().at("half").dtype, DType::f16);
  EXPECT_EQ(file.tensors().at("scalar").shape, Dims{});
  EXPECT_EQ(read_numbers(file, "mask"), (std::vector<double>{1, 0, 1}));
  EXPECT_TRUE(read_numbers(file, "empty").empty());
}

// Three views of one storage of [6, 4].
TEST_P(TorchFiles, ViewsAreReadThroughTheirStrides) {
  const TorchFile file(torch_fixture(GetParam()));
  const auto base = [](int64_t row, int64_t col) { return fixture_value("base", row * 4 + col); };
  EXPECT_EQ(file.tensors().at("transposed").shape, (Dims{4, 6}));
  const auto transposed = read_numbers(file, "transposed", {{1, 2}, {3, 2}});
  const auto rows = read_numbers(file, "rows"), columns = read_numbers(file, "columns");
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(transposed[i], base(2 + i % 2, 1 + i / 2)) << i;
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(rows[i], base(2 + i / 4, i % 4)) << i;
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(columns[i], base(i / 2, 1 + i % 2)) << i;
}

TEST_P(TorchFiles, EveryCutIsNoticed) {
  const std::string bytes = read_file(torch_fixture(GetParam()));
  // Every place in the smaller half, where the objects are, and some in the rest.
  for (size_t size = 0; size + 1 < bytes.size(); size += size < 3000 ? 1 : 97)
    EXPECT_THAT(error_of([&] { TorchArchive(as_bytes(bytes).first(size), "x.pt"); }),
                HasSubstr("x.pt"))
        << size;
}

TEST_P(TorchFiles, FlippedBytesDoNoHarm) {
  const std::string good = read_file(torch_fixture(GetParam()));
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bytes = good;
    bytes[i] = char(bytes[i] ^ (1 << (i % 8)));
    try {
      const TorchArchive archive(as_bytes(bytes), "x.pt");
      for (const auto& [name, tensor] : archive.tensors(archive.root()))
        ASSERT_LE(tensor.bytes.size(), bytes.size());
    } catch (const Error& error) {
      ASSERT_THAT(error.what(), HasSubstr("x.pt"));
    }
  }
}

// Every bit of a tensor's bytes: plain.pt has checksums, the older form none.
TEST(TorchFile, AFlippedBitIsAnErrorThatNamesTheFileAndTheEntry) {
  const TempFolder folder;
  const std::string good = read_file(torch_fixture("plain.pt"));
  const TorchArchive archive(as_bytes(good), "good");
  const TorchTensor weight = archive.tensors(archive.root()).at("weight");
  const size_t begin = size_t(reinterpret_cast<const char*>(weight.bytes.data()) - good.data());
  ASSERT_GT(weight.bytes.size(), 0u);
  for (size_t bit = 0; bit < 8 * weight.bytes.size(); bit += 5) {
    std::string bytes = good;
    bytes[begin + bit / 8] = char(bytes[begin + bit / 8] ^ (1 << (bit % 8)));
    write_file(folder / "flipped.pt", bytes);
    const TorchFile file(folder / "flipped.pt");
    const std::string message = error_of([&] { read_numbers(file, "weight"); });
    EXPECT_THAT(message, HasSubstr((folder / "flipped.pt").string())) << bit;
    EXPECT_THAT(message, HasSubstr("/data/")) << bit;
    EXPECT_THAT(message, HasSubstr("is damaged")) << bit;
    expect_fixture(file, "half", "half");  // an entry of its own
  }
}

INSTANTIATE_TEST_SUITE_P(
    Both, TorchFiles, ::testing::Values("plain.pt", "legacy.pt"), [](const auto& info) {
      return std::string(info.param).substr(0, std::string(info.param).find('.'));
    });

TEST(TorchFile, TypesWithoutAStorageOfTheirOwnAreRead) {
  const TorchFile file(torch_fixture("small_types.pt"));
  EXPECT_EQ(file.tensors().at("u16").dtype, DType::u16);
  EXPECT_EQ(read_numbers(file, "u16"), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(file.tensors().at("e4m3").dtype, DType::f8e4m3);
}

TEST(TorchFile, APartOfTheFileCanBeTheRoot) {
  const TorchFile file(torch_fixture("plain.pt"), "inner.deep");
  EXPECT_THAT(names_of(file), ::testing::ElementsAre("leaf"));
  EXPECT_THAT(error_of([] { TorchFile(torch_fixture("plain.pt"), "inner.other"); }),
              HasSubstr("plain.pt has no 'other'"));
  EXPECT_THAT(error_of([] { TorchFile(torch_fixture("plain.pt"), "step"); }),
              HasSubstr("the number 17 where a dict of tensors should be"));
}

TEST(TorchFile, BoxesBeyondTheTensorAreRefused) {
  const TorchFile file(torch_fixture("plain.pt"));
  std::vector<std::byte> out(4);
  EXPECT_THAT(error_of([&] {
                file.read("weight", {{3, 0}, {1, 1}}, out);
              }),
              HasSubstr("weight is [3, 5]; the box of [1, 1] at [3, 0] lies beyond it"));
  EXPECT_THAT(error_of([&] {
                file.read("weight", {{0, 0}, {1, 2}}, out);
              }),
              HasSubstr("the box of [1, 2] is 8 bytes, but there is room for 4"));
  EXPECT_THAT(error_of([&] {
                file.read("wait", {{0}, {1}}, out);
              }),
              HasSubstr("has no tensor wait among its 13"));
}

TEST(TorchFile, OtherFilesAreRefused) {
  EXPECT_THAT(error_of([] { TorchArchive(as_bytes("hello"), "x.pt"); }),
              HasSubstr("neither a zip archive nor a pickle"));
  EXPECT_THAT(error_of([] { TorchFile(torch_fixture("hf_bin/pytorch_model.bin.index.json")); }),
              HasSubstr("no file of torch.save"));
}

TEST(TorchBinFolder, JoinsTheFilesOfAnIndex) {
  ASSERT_TRUE(TorchBinFolder::is_one(torch_fixture("hf_bin")));
  EXPECT_FALSE(TorchBinFolder::is_one(torch_fixture("torch_dist")));
  const TorchBinFolder folder(torch_fixture("hf_bin"));
  EXPECT_THAT(
      names_of(folder),
      ::testing::ElementsAre("lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"));
  for (const std::string& name : names_of(folder)) expect_fixture(folder, name, name);
  EXPECT_EQ(folder.description(), "hf_bin (2 .bin files, 3 tensors)");
}

TEST(TorchBinFolder, AnIndexNamesFilesOfItsFolderAlone) {
  const TempFolder folder;
  write_file(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"x": "../secret.bin"}})");
  EXPECT_THAT(error_of([&] { TorchBinFolder(folder.path()); }),
              HasSubstr("'../secret.bin' is no file of this folder"));
}

}  // namespace
}  // namespace phx
