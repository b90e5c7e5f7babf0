#include "phalanx/data/preprocess/text_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/preprocess/compressed.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BlockReader, LinesLongerThanABlockStayWhole) {
  const TempFolder folder;
  const std::string text = std::string(1000, 'a') + "\nbb\n" + std::string(300, 'c');
  write_file(folder / "a.txt", text);
  BlockReader reader({folder / "a.txt"}, /*block_bytes=*/64);
  std::string all;
  LineBlock block;
  int64_t line = 1;
  while (reader.next(block)) {
    EXPECT_EQ(block.first_line, line);
    all += block.text();
    line += std::count(block.text().begin(), block.text().end(), '\n');
    EXPECT_TRUE(block.text().ends_with('\n') || all.size() == text.size());
  }
  EXPECT_EQ(all, text);
  EXPECT_EQ(reader.bytes_text(), int64_t(text.size()));
}

TEST(BlockReader, CountsLinesByFileAndOverAll) {
  const TempFolder folder;
  write_file(folder / "a.txt", "1\n2");  // without a line feed at its end
  write_file(folder / "empty.txt", "");
  write_file(folder / "b.txt", "3\n");
  BlockReader reader({folder / "a.txt", folder / "empty.txt", folder / "b.txt"});
  EXPECT_EQ(reader.bytes_total(), 5);
  LineBlock block;
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.text(), "1\n2");
  EXPECT_EQ(block.file, 0u);
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.text(), "3\n");
  EXPECT_EQ(block.file, 2u);
  EXPECT_EQ(block.first_line, 1);
  EXPECT_EQ(block.first_index, 2);
  for (size_t i = 0; i < LineBlock::kPadding; ++i) EXPECT_EQ(block.memory.at(block.size + i), 0);
  EXPECT_FALSE(reader.next(block));
  EXPECT_EQ(reader.bytes_in(), 5);
}

TEST(BlockReader, AFileThatIsNotThereIsNamedAtOnce) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { BlockReader({folder / "none.txt"}); }),
              HasSubstr((folder / "none.txt").string()));
}

std::string all_of(const Path& path, size_t piece) {
  const auto stream = open_stream(path);
  std::string all, part(piece, '?');
  for (size_t got; (got = stream->read(part)) > 0;) all += part.substr(0, got);
  return all;
}

TEST(ByteStream, DecompressesInPiecesOfAnySize) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * i) + " ";
  write_file(folder / "plain", text);
  write_file(folder / "a.gz", gzipped(text) + gzipped("and more"));
  write_file(folder / "a.zst", zstandard(text) + zstandard("and more"));
  for (const size_t piece : {size_t{7}, size_t{4096}, size_t{1} << 20}) {
    EXPECT_EQ(all_of(folder / "plain", piece), text);
    EXPECT_TRUE(all_of(folder / "a.gz", piece) == text + "and more") << piece;
    EXPECT_TRUE(all_of(folder / "a.zst", piece) == text + "and more") << piece;
  }
}

TEST(ByteStream, BrokenDataIsNamed) {
  const TempFolder folder;
  write_file(folder / "a.gz", "this is no gzip");
  write_file(folder / "a.zst", "this is no zstd");
  EXPECT_EQ(error_of([&] { all_of(folder / "a.gz", 100); }),
            (folder / "a.gz").string() + ": the gzip data is broken");
  EXPECT_THAT(error_of([&] { all_of(folder / "a.zst", 100); }),
              HasSubstr((folder / "a.zst").string() + ": the zstd data "));
  EXPECT_THAT(error_of([&] { open_stream(folder.path()); }), HasSubstr("Is a directory"));
}

TEST(KindOfText, GoesByTheNameBeforeItsCompression) {
  EXPECT_EQ(kind_of_text("a.txt"), TextKind::plain);
  EXPECT_EQ(kind_of_text("a.txt.zst"), TextKind::plain);
  EXPECT_EQ(kind_of_text("a.jsonl.gz"), TextKind::json_lines);
  EXPECT_EQ(kind_of_text("a"), TextKind::json_lines);
  EXPECT_EQ(error_of([] { kind_of_text("a.tar.gz"); }),
            "a.tar.gz: preprocess reads JSON lines and text, plain, .gz or .zst, but no .tar "
            "files");
}

TEST(ExpandPatterns, TakesFilesInTheOrderOfTheirNames) {
  const TempFolder folder;
  for (const char* name : {"b.jsonl", "a.jsonl", "c.txt"}) write_file(folder / name, "x");
  const std::string patterns[] = {(folder / "*.jsonl").string(), (folder / "c.txt").string()};
  EXPECT_THAT(expand_patterns(patterns),
              ElementsAre(folder / "a.jsonl", folder / "b.jsonl", folder / "c.txt"));
  const std::string none[] = {(folder / "*.gz").string()};
  EXPECT_THAT(error_of([&] { expand_patterns(none); }), HasSubstr("no file fits "));
}

}  // namespace
}  // namespace phx
