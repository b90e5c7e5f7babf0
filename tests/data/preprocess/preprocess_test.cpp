#include "phalanx/data/preprocess/preprocess.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "data/preprocess/compressed.h"
#include "phalanx/base/error.h"
#include "phalanx/data/indexed/indexed_dataset.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "phalanx/data/preprocess/text_input.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A token is a byte; 256 ends a document.
class Bytes : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const unsigned char c : text) ids.push_back(c);
  }
  std::string decode(std::span<const int32_t> ids) const override {
    return {ids.begin(), ids.end()};
  }
  int64_t vocab_size() const override { return 257; }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }
  std::string token_text(int32_t) const override { return ""; }
  std::optional<int32_t> eod() const override { return 256; }
  std::string description() const override { return "bytes"; }
};

std::vector<std::string> documents_of(const Path& prefix) {
  const IndexedDataset pair(prefix);
  pair.check_all();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < pair.num_sequences(); ++i) {
    std::vector<int32_t> tokens(size_t(pair.length(i)));
    pair.copy(i, 0, tokens);
    std::string text;
    for (const int32_t token : tokens) text += token == 256 ? '|' : char(token);
    texts.push_back(text);
  }
  return texts;
}

// Runs over one file of this text and gives back the documents.
std::vector<std::string> run_over(const std::string& name, const std::string& bytes,
                                  PreprocessOptions options = {}) {
  const TempFolder folder;
  write_file(folder / name, bytes);
  options.inputs = {folder / name};
  options.output_prefix = folder / "out";
  preprocess(options, Bytes());
  return documents_of(folder / ("out_" + options.json_keys[0] + "_document"));
}

TEST(Preprocess, ADocumentALineOfTheKey) {
  EXPECT_THAT(run_over("a.jsonl", "{\"text\": \"one\"}\n\n{\"x\": 1, \"text\": \"t\\u0041\\n\"}"),
              ElementsAre("one", "tA\n"));
  EXPECT_THAT(run_over("a.jsonl", "{\"text\":\"\"}\n{\"text\":\"x\"}\n", {.append_eod = true}),
              ElementsAre("x|"));
  EXPECT_THAT(
      run_over("a.jsonl", "{\"b\":\"y\",\"text\":\"n\",\"b\":\"z\"}\n", {.json_keys = {"b"}}),
      ElementsAre("z"));
}

// The .idx that Megatron-LM's tools/preprocess_data.py and IndexedDatasetBuilder write for these
// lines with these ids: sequences of 3 and 2 tokens, documents [0 1 1 2 2 2].
TEST(Preprocess, EmptyDocumentsHaveAnEntryAsMegatronsDo) {
  const std::string megatrons =
      "4d4d49444944580000010000000000000008020000000000000006000000000000000300000002000000"
      "000000000000000006000000000000000000000000000000010000000000000001000000000000000200"
      "00000000000002000000000000000200000000000000";
  for (const int partitions : {1, 5}) {
    const TempFolder folder;
    write_file(
        folder / "a.jsonl",
        "{\"text\":\"ab\"}\n{\"text\":\"\"}\n{\"text\":\"c\"}\n{\"text\":\"\"}\n{\"text\":\"\"}\n");
    const PreprocessReport report = preprocess({.inputs = {folder / "a.jsonl"},
                                                .output_prefix = folder / "out",
                                                .append_eod = true,
                                                .partitions = partitions},
                                               Bytes());
    std::string hex;
    for (const char c : read_file(folder / "out_text_document.idx"))
      hex += fmt::format("{:02x}", uint8_t(c));
    EXPECT_EQ(hex, megatrons) << partitions;
    EXPECT_EQ(report.outputs[0].documents, 5);
    const IndexedDataset pair(folder / "out_text_document");
    pair.check_all();
    EXPECT_EQ(pair.num_documents(), 5);
    EXPECT_EQ(pair.num_sequences(), 2);
    // Joined with itself.
    const Path both[] = {folder / "out_text_document", folder / "out_text_document"};
    merge_datasets(both, folder / "joined");
    EXPECT_EQ(IndexedDataset(folder / "joined").num_documents(), 10);
    EXPECT_EQ(IndexedDataset(folder / "joined").document_start(7), 3);
  }
}

TEST(Preprocess, DocumentsHaveWhatTheTokenizerPutsAroundThem) {
  class WithStart : public Bytes {
    void encode_with_special(std::string_view text, std::vector<int32_t>& ids) const override {
      ids.push_back('^');
      encode(text, ids);
    }
  };
  const TempFolder folder;
  write_file(folder / "in.txt", "ab\ncd\n");
  PreprocessOptions options{.inputs = {folder / "in.txt"}, .output_prefix = folder / "out"};
  preprocess(options, WithStart());
  EXPECT_THAT(documents_of(folder / "out_text_document"), ElementsAre("^ab", "^cd"));
  options.with_special = false;
  preprocess(options, WithStart());
  EXPECT_THAT(documents_of(folder / "out_text_document"), ElementsAre("ab", "cd"));
}

TEST(Preprocess, ReadsPlainAndCompressedText) {
  EXPECT_THAT(run_over("a.txt", "one\r\ntwo words\n\nthree"),
              ElementsAre("one", "two words", "three"));
  const std::string lines = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
  EXPECT_THAT(run_over("a.jsonl.gz", gzipped(lines)), ElementsAre("a", "b"));
  EXPECT_THAT(run_over("a.jsonl.gz", gzipped(lines) + gzipped(lines)),
              ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(run_over("a.jsonl.zst", zstandard(lines) + zstandard(lines)),
              ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(error_of([&] { run_over("a.jsonl.gz", gzipped(lines).substr(0, 20)); }),
              HasSubstr("a.jsonl.gz: the gzip data is cut off"));
  EXPECT_THAT(error_of([&] { run_over("a.jsonl.zst", zstandard(lines).substr(0, 20)); }),
              HasSubstr("a.jsonl.zst: the zstd data is cut off"));
  EXPECT_THAT(error_of([&] { run_over("a.parquet", "x"); }), HasSubstr("but no .parquet files"));
}

TEST(Preprocess, ABrokenLineIsNamedOrSkipped) {
  const std::string lines =
      "{\"text\":\"a\"}\n{\"text\":\"b\"\n{\"other\":\"c\"}\n[1]\n{\"text\":5}";
  EXPECT_THAT(error_of([&] { run_over("a.jsonl", lines); }),
              HasSubstr("a.jsonl:2: this is no JSON: "));
  EXPECT_THAT(run_over("a.jsonl", lines, {.skip_broken = true}), ElementsAre("a"));
  EXPECT_THAT(error_of([&] { run_over("a.jsonl", "\n\n{\"other\":\"c\"}\n"); }),
              HasSubstr("a.jsonl:3: there is no \"text\""));
  EXPECT_THAT(error_of([&] { run_over("a.jsonl", "{\"text\":5}\n"); }),
              HasSubstr("a.jsonl:1: \"text\" should be a string, but it is a number"));
  EXPECT_THAT(error_of([&] { run_over("a.jsonl", "[1]\n"); }),
              HasSubstr("a line should be a JSON object, but this is a list"));
}

TEST(Preprocess, FilesDoNotDependOnTheWorkers) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 60000; ++i)
    lines += "{\"text\":\"line " + std::to_string(i) + std::string(size_t(i % 60), 'x') + "\"}\n";
  write_file(folder / "a.jsonl", lines);
  write_file(folder / "b.jsonl.zst", zstandard(lines));
  PreprocessOptions options;
  options.inputs = {folder / "a.jsonl", folder / "b.jsonl.zst"};
  for (const int partitions : {1, 3}) {
    std::string first_bin, first_idx;
    for (const int workers : {1, 4}) {
      options.workers = workers;
      options.partitions = partitions;
      options.output_prefix = folder / "out";
      const PreprocessReport report = preprocess(options, Bytes());
      EXPECT_EQ(report.outputs[0].documents, 120000);
      const std::string bin = read_file(folder / "out_text_document.bin");
      const std::string idx = read_file(folder / "out_text_document.idx");
      if (workers == 1) {
        first_bin = bin;
        first_idx = idx;
      }
      EXPECT_TRUE(bin == first_bin && idx == first_idx) << workers;
    }
  }
}

TEST(Preprocess, PartitionsDealLinesOut) {
  std::string lines;
  for (const char c : {'a', 'b', 'c', 'd', 'e'}) lines += std::string("{\"text\":\"") + c + "\"}\n";
  EXPECT_THAT(run_over("a.jsonl", lines, {.partitions = 2}), ElementsAre("a", "c", "e", "b", "d"));
}

TEST(Preprocess, AFailureLeavesNothingBehind) {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "{\"text\":\"a\"}\n{\n");
  PreprocessOptions options;
  options.inputs = {folder / "a.jsonl"};
  options.output_prefix = folder / "out";
  EXPECT_ANY_THROW(preprocess(options, Bytes()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(FindInputs, InAFolderEveryTextFileIsADocument) {
  const TempFolder folder;
  for (const char* name : {"texts/deep", "texts/.git"})
    std::filesystem::create_directories(folder / name);
  write_file(folder / "texts/b.md", "two\n\nparagraphs\n");
  write_file(folder / "texts/deep/c.jsonl", "{\"text\":\"three\"}\n{\"text\":\"four\"}\n");
  write_file(folder / "texts/a", "one");
  write_file(folder / "texts/.git/HEAD", "hidden");
  write_file(folder / "texts/blank.txt", " \n\n");
  const std::string patterns[] = {(folder / "texts").string()};
  PreprocessOptions options{.inputs = find_inputs(patterns),
                            .output_prefix = folder / "new/folder/out",
                            .append_eod = true};
  preprocess(options, Bytes());
  EXPECT_THAT(documents_of(folder / "new/folder/out_text_document"),
              ElementsAre("one|", "two\n\nparagraphs\n|", "three|", "four|"));
}

TEST(FindInputs, AFolderWithoutFilesOrWithBinaryOnesIsRefused) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "empty");
  const std::string empty[] = {(folder / "empty").string()};
  EXPECT_THAT(error_of([&] { find_inputs(empty); }), HasSubstr("empty has no files"));
  write_file(folder / "empty/a.parquet", "PAR1");
  EXPECT_THAT(error_of([&] { find_inputs(empty); }), HasSubstr("no .parquet files"));
}

TEST(FindInputs, AFolderThatCannotBeReadIsAnErrorAndNotAnEnd) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads every folder";
  const TempFolder folder;
  std::filesystem::create_directories(folder / "texts/closed");
  write_file(folder / "texts/a", "one");
  std::filesystem::permissions(folder / "texts/closed", std::filesystem::perms::none);
  const std::string patterns[] = {(folder / "texts").string()};
  EXPECT_THAT(error_of([&] { find_inputs(patterns); }), HasSubstr("texts/closed"));
  std::filesystem::permissions(folder / "texts/closed", std::filesystem::perms::owner_all);
}

TEST(Preprocess, AWholeDocumentMayBeLongerThanABlock) {
  const TempFolder folder;
  const std::string text(5'000'000, 'x');
  write_file(folder / "long", text + "\n" + text);
  preprocess({.inputs = {{folder / "long", TextKind::whole}}, .output_prefix = folder / "out"},
             Bytes());
  EXPECT_THAT(documents_of(folder / "out_text_document"), ElementsAre(text + "\n" + text));
}

TEST(Preprocess, APipeIsReadToItsEnd) {
  const TempFolder folder;
  const Path pipe = folder / "pipe.txt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "one\ntwo\n"; });
  const PreprocessReport report =
      preprocess({.inputs = {pipe}, .output_prefix = folder / "out"}, Bytes());
  writer.join();
  EXPECT_THAT(documents_of(folder / "out_text_document"), ElementsAre("one", "two"));
  EXPECT_EQ(report.progress.bytes_total, 0) << "a pipe does not say how long it is";
}

TEST(Preprocess, CompressedDataUnderAnotherNameIsNamed) {
  const TempFolder folder;
  write_file(folder / "a.jsonl", gzipped("{\"text\":\"a\"}\n"));
  EXPECT_THAT(error_of([&] {
                preprocess({.inputs = {folder / "a.jsonl"}, .output_prefix = folder / "out"},
                           Bytes());
              }),
              AllOf(HasSubstr("a.jsonl is gzip data, not text"), HasSubstr("name ends in .gz")));
}

TEST(PreprocessProgress, OfAPipeSaysHowMuchWasRead) {
  EXPECT_EQ(progress_line({.bytes_text = 124'000'000, .lines = 24600, .seconds = 2}),
            "124.0 MB | 62.0 MB/s | 12.3 k documents/s");
}

TEST(PreprocessProgress, SaysHowFastAndHowLong) {
  EXPECT_EQ(progress_line({.bytes_done = 250,
                           .bytes_total = 1000,
                           .bytes_text = 124'000'000,
                           .lines = 24600,
                           .seconds = 2}),
            " 25% | 62.0 MB/s | 12.3 k documents/s | 6.0 s left");
}

}  // namespace
}  // namespace phx
