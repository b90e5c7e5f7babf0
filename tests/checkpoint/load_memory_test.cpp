#include "phalanx/checkpoint/load_memory.h"

#include <gtest/gtest.h>

#include "phalanx/checkpoint/manifest.h"
#include "support/anonymous_memory.h"

namespace phx {
namespace {

// As ranks write it that hold a piece of every tensor each.
std::string manifest_text(int64_t tensors, int64_t pieces, int64_t blocks) {
  constexpr int64_t kWidth = 16384;
  const int64_t rows = blocks * kBlockBytes / (kWidth * 4);
  Manifest manifest{.iteration = 1};
  for (int64_t i = 0; i < pieces; ++i)
    manifest.files.push_back({.name = str_cat("shard_", i, ".safetensors"),
                              .bytes = int64_t{1} << 50,
                              .header_bytes = 100,
                              .header_hash = 7});
  for (int64_t t = 0; t < tensors; ++t) {
    SavedTensor tensor{.info = {DType::f32, {rows * pieces, kWidth}}, .pieces = {}};
    for (int64_t i = 0; i < pieces; ++i)
      tensor.pieces.push_back({.file = i,
                               .offset = 123'456'789'012 + i,
                               .box = {{rows * i, 0}, {rows, kWidth}},
                               .hashes = std::vector<uint64_t>(size_t(blocks), uint64_t(t) << 50)});
    manifest.tensors[str_cat("optimizer.exp_avg.decoder.layers.", t, ".mlp.linear_fc1.weight")] =
        std::move(tensor);
  }
  return manifest.to_text();
}

TEST(LoadMemory, AManifestTakesNoMoreThanTheBoundAndNotMuchLess) {
  if (!kMemoryIsMeasured) GTEST_SKIP() << "a sanitizer's memory is not the program's";
  for (const int64_t blocks : {1, 33}) {
    const int64_t tensors = 20, pieces = 1000;
    const std::string text = manifest_text(tensors, pieces, blocks);
    const int64_t bound =
        most_manifest_memory({.pieces = tensors * pieces, .blocks = tensors * pieces * blocks});
    AnonymousMemory memory;
    const Manifest manifest = Manifest::parse(text, "a test");
    const int64_t taken = memory.peak_beside() + int64_t(text.size());
    EXPECT_LE(taken, bound);
    EXPECT_GT(taken, bound / 2) << "of " << text.size() << " bytes of text";
    EXPECT_EQ(manifest.tensors.size(), size_t(tensors));
  }
}

TEST(LoadMemory, BlocksAreCountedPieceByPiece) {
  const LocalBox small{
      .name = "a", .info = {DType::f32, {1}}, .box = {}, .flat = {}, .rows = 1, .cols = 1};
  LocalBox large = small;
  large.rows = kBlockBytes / 4 + 1;
  const ListedPieces listed = listed_pieces(std::vector{small, large});
  EXPECT_EQ(listed.pieces, 2);
  EXPECT_EQ(listed.blocks, 1 + 2);
}

}  // namespace
}  // namespace phx
