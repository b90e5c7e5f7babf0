#include "phalanx/checkpoint/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "phalanx/checkpoint/safetensors.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

// A whole tensor of more than two blocks, a part of one, and a piece without elements.
std::vector<PieceToWrite> three_pieces() {
  const int64_t rows = 2 * kBlockBytes / 64 + 1;
  return {{"whole", {DType::u8, {rows, 64}}, {{0, 0}, {rows, 64}}},
          {"part", {DType::u16, {8, 4}}, {{2, 0}, {3, 4}}},
          {"none", {DType::f32, {0, 4}}, {{0, 0}, {0, 4}}}};
}

std::vector<std::byte> content() {
  std::vector<std::byte> bytes(size_t(2 * kBlockBytes + 64 + 3 * 4 * 2));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 31 % 251);
  return bytes;
}

TEST(ShardWriter, PartsHaveTheirBoxInTheName) {
  const TempFolder folder;
  ShardWriter shard(folder.path(), "x.safetensors", three_pieces());
  shard.open();
  shard.write(content());
  shard.finish();
  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_EQ(file.at("whole").shape, (std::vector<int64_t>{2 * kBlockBytes / 64 + 1, 64}));
  EXPECT_EQ(file.at("part[2:5, 0:4]").shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(std::memcmp(file.at("part[2:5, 0:4]").bytes.data(),
                        content().data() + 2 * kBlockBytes + 64, 24),
            0);
}

TEST(ShardWriter, ChecksumsAreOfTheBlocksOfEachPieceHoweverTheBytesCome) {
  const std::vector<std::byte> all = content();
  const std::span bytes(all);
  for (const size_t step : {size_t{1} << 30, size_t{100'003}, size_t{kBlockBytes}}) {
    const TempFolder folder;
    ShardWriter shard(folder.path(), "x", three_pieces());
    shard.open();
    for (size_t at = 0; at < bytes.size(); at += step)
      shard.write(bytes.subspan(at, std::min(step, bytes.size() - at)));
    const Manifest part = shard.finish();
    const SavedPiece& whole = part.tensors.at("whole").pieces.at(0);
    ASSERT_EQ(whole.hashes.size(), 3u);
    EXPECT_EQ(whole.hashes[0], xxh3(bytes.first(kBlockBytes)));
    EXPECT_EQ(whole.hashes[1], xxh3(bytes.subspan(kBlockBytes, kBlockBytes)));
    EXPECT_EQ(whole.hashes[2], xxh3(bytes.subspan(2 * kBlockBytes, 64)));
    EXPECT_EQ(part.tensors.at("part").pieces.at(0).hashes,
              std::vector<uint64_t>{xxh3(bytes.last(24))});
    EXPECT_TRUE(part.tensors.at("none").pieces.empty());
    EXPECT_EQ(part.files.at(0).bytes, int64_t(std::filesystem::file_size(folder / "x")));
  }
}

TEST(ShardWriter, PartsOfTheFileMayBeWrittenInAnyOrder) {
  const TempFolder folder;
  ShardWriter in_order(folder.path(), "a", three_pieces());
  in_order.open();
  in_order.write(content());
  in_order.finish();

  ShardWriter shard(folder.path(), "b", three_pieces());
  shard.open();
  const std::string whole = read_file(folder / "a");
  const std::span bytes = as_bytes(whole);
  shard.account(bytes.first(5000));
  shard.account(bytes.subspan(5000));
  shard.write_at(1 << 20, bytes.subspan(1 << 20));
  shard.write_at(0, bytes.first(1 << 20));
  const Manifest part = shard.finish();
  EXPECT_EQ(read_file(folder / "b"), whole);
  EXPECT_EQ(part.tensors.at("whole").pieces.at(0).hashes.size(), 3u);
}

TEST(ShardWriter, TooFewAndTooManyBytesAreBugs) {
  const TempFolder folder;
  const std::vector<std::byte> all = content();
  ShardWriter few(folder.path(), "few", three_pieces());
  few.open();
  few.write(std::span(all).first(100));
  EXPECT_THAT(error_of([&] { few.finish(); }), HasSubstr("few has "));
  ShardWriter many(folder.path(), "many", three_pieces());
  many.open();
  many.write(all);
  EXPECT_THAT(error_of([&] { many.write(std::span(all).first(1)); }),
              HasSubstr("more bytes than pieces"));
  ShardWriter closed(folder.path(), "closed", three_pieces());
  EXPECT_THAT(error_of([&] { closed.write(all); }), HasSubstr("a file that is not open"));
}

TEST(ShardWriter, WithoutPiecesThereIsNoFileAndWithoutBytesAHeader) {
  const TempFolder folder;
  ShardWriter none(folder.path(), "none", {});
  none.open();
  EXPECT_TRUE(none.finish().files.empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
  ShardWriter empty(folder.path(), "empty", {three_pieces()[2]});
  empty.open();
  const Manifest part = empty.finish();
  EXPECT_TRUE(part.tensors.contains("none"));
  EXPECT_EQ(SafetensorsFile(folder / "empty").at("none").shape, (std::vector<int64_t>{0, 4}));
}

}  // namespace
}  // namespace phx
