#include "phalanx/convert/rearranged_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "convert/hf_fixtures.h"
#include "phalanx/convert/hf_model.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RearrangedSource, AnyBoxIsThatPartOfTheTensor) {
  std::mt19937 random(1);
  for (const char* name : {"gpt2", "llama2", "qwen2_moe", "deepseek_v3_fp8"}) {
    const HfModel hf(hf_fixture(name));
    TensorsInMemory whole(*hf.tensors);
    for (const auto& [tensor, info] : hf.tensors->tensors()) {
      for (int i = 0; i < 20; ++i) {
        const Box box = random_box(info.shape, random);
        std::vector<std::byte> part(size_t(box.numel() * size_of(info.dtype))), expected(part);
        hf.tensors->read(tensor, box, part);
        whole.read(tensor, box, expected);
        ASSERT_EQ(part, expected) << name << " " << tensor;
      }
    }
  }
}

TEST(RearrangedSource, AnyBoxOfAnExportIsThatPartOfTheTensor) {
  const TempFolder folder;
  std::mt19937 random(2);
  const HfModel hf(hf_fixture("gpt2"));
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, hf.config.model);
  const auto theirs =
      RearrangedSource::megatron_as_hf(std::make_shared<TensorsInMemory>(*hf.tensors), pairs, "x");
  TensorsInMemory whole = tensors_of(hf_fixture("gpt2"));
  for (const auto& [tensor, info] : theirs->tensors()) {
    for (int i = 0; i < 20; ++i) {
      const Box box = random_box(info.shape, random);
      std::vector<std::byte> part(size_t(box.numel() * size_of(info.dtype))), expected(part);
      theirs->read(tensor, box, part);
      whole.read(tensor, box, expected);
      ASSERT_EQ(part, expected) << tensor;
    }
  }
}

TEST(RearrangedSource, MissingMisshapenAndUnexpectedTensorsAreAllNamed) {
  const TempFolder folder;
  TensorsInMemory tensors = tensors_of(hf_fixture("llama2"));
  tensors.rename("model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.down_prj.weight");
  TensorInfo norm = tensors.tensors().at("model.norm.weight");
  norm.shape = {4, 4};
  tensors.set("model.norm.weight", norm, tensors.bytes("model.norm.weight"));
  write_folder(folder / "bad", tensors, "llama2");
  EXPECT_THAT(
      error_of([&] { HfModel model(folder / "bad"); }),
      AllOf(HasSubstr("missing: 1\n    model.layers.1.mlp.down_proj.weight (nearest: "
                      "model.layers.1.mlp.down_prj.weight)"),
            HasSubstr("model.norm.weight is [4, 4] there, but the model's config makes it [16]"),
            HasSubstr("nothing asks for: 1\n    model.layers.1.mlp.down_prj.weight")));
}

// Ours "w" [4, 2] has the rows of theirs "a" [2, 2] and "b" [2, 2] by turns.
TensorPair woven() {
  return {.ours = "w",
          .our_shape = {4, 2},
          .hf = {{"a", {2, 2}}, {"b", {2, 2}}},
          .blocks = {{0, 0, 0, 1}, {1, 1, 0, 1}, {0, 2, 1, 1}, {1, 3, 1, 1}},
          .transposed = false};
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(std::byte(value));
  return bytes;
}

std::vector<std::byte> read_all(const TensorSource& source, const std::string& name) {
  const TensorInfo& info = source.tensors().at(name);
  std::vector<std::byte> bytes(size_t(whole_box(info.shape).numel() * size_of(info.dtype)));
  source.read(name, whole_box(info.shape), bytes);
  return bytes;
}

TEST(RearrangedSource, RowsGoToTheirPlacesAndBack) {
  const auto theirs = std::make_shared<TensorsInMemory>();
  theirs->set("a", {DType::u8, {2, 2}}, bytes_of({1, 2, 3, 4}));
  theirs->set("b", {DType::u8, {2, 2}}, bytes_of({5, 6, 7, 8}));
  const std::vector<TensorPair> pairs = {woven()};
  const auto ours = RearrangedSource::hf_as_megatron(theirs, *find_family("llama"), pairs, "x");
  EXPECT_EQ(read_all(*ours, "w"), bytes_of({1, 2, 5, 6, 3, 4, 7, 8}));
  const auto back =
      RearrangedSource::megatron_as_hf(std::make_shared<TensorsInMemory>(*ours), pairs, "x");
  EXPECT_EQ(read_all(*back, "a"), bytes_of({1, 2, 3, 4}));
  EXPECT_EQ(read_all(*back, "b"), bytes_of({5, 6, 7, 8}));
}

TEST(RearrangedSource, PartsOfOneTensorHaveOneType) {
  const auto theirs = std::make_shared<TensorsInMemory>();
  theirs->set("a", {DType::u8, {2, 2}}, bytes_of({1, 2, 3, 4}));
  theirs->set("b", {DType::bf16, {2, 2}}, std::vector<std::byte>(8));
  EXPECT_THAT(error_of([&] {
                RearrangedSource::hf_as_megatron(theirs, *find_family("llama"), {woven()},
                                                 "folder");
              }),
              AllOf(HasSubstr("folder does not hold the model's tensors"),
                    HasSubstr("b is bf16, but a, which it is joined with, is u8")));
}

TEST(RearrangedSource, BoxesBeyondATensorAndWrongRoomAreRefused) {
  const auto theirs = std::make_shared<TensorsInMemory>();
  theirs->set("a", {DType::u8, {2, 2}}, bytes_of({1, 2, 3, 4}));
  theirs->set("b", {DType::u8, {2, 2}}, bytes_of({5, 6, 7, 8}));
  const auto ours = RearrangedSource::hf_as_megatron(theirs, *find_family("llama"), {woven()}, "x");
  std::vector<std::byte> out(2);
  EXPECT_THAT(error_of([&] {
                ours->read("v", {{0, 0}, {1, 2}}, out);
              }),
              HasSubstr("has no tensor v"));
  EXPECT_THAT(error_of([&] {
                ours->read("w", {{0}, {2}}, out);
              }),
              HasSubstr("w is [4, 2]; a box of it has as many dimensions"));
  EXPECT_THAT(error_of([&] {
                ours->read("w", {{4, 0}, {1, 2}}, out);
              }),
              HasSubstr("elements 4 to 5 of dimension 0 are asked for"));
  EXPECT_THAT(error_of([&] {
                ours->read("w", {{0, 0}, {2, 2}}, out);
              }),
              HasSubstr("2 bytes of room for 4 elements of 1 bytes"));
}

}  // namespace
}  // namespace phx
