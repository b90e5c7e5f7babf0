#include "phalanx/data/indexed/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "data/indexed/example_pair.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IndexedDataset, ReadsWhatWasWrittenInEveryType) {
  for (const TokenCode code : {TokenCode::u8, TokenCode::i8, TokenCode::i16, TokenCode::u16,
                               TokenCode::i32, TokenCode::i64}) {
    const TempFolder folder;
    write_example(folder / "pair", code);
    const IndexedDataset pair(folder / "pair");
    pair.check_all();
    EXPECT_EQ(pair.num_sequences(), 3);
    EXPECT_EQ(pair.num_documents(), 2);
    EXPECT_EQ(pair.num_tokens(), 6);
    EXPECT_THAT(tokens_of(pair, 0), ElementsAre(1, 2, 3)) << name_of_code(code);
    EXPECT_THAT(tokens_of(pair, 2), ElementsAre(5, 6));
    std::vector<int32_t> piece(2);
    pair.copy(0, 1, piece);
    EXPECT_THAT(piece, ElementsAre(2, 3));
  }
}

// Cuts or changes the .idx and says what opening it (and looking at all of it) comes to.
std::string error_with(const std::function<void(std::string& idx, std::string& bin)>& change) {
  const TempFolder folder;
  write_example(folder / "pair");
  std::string idx = read_file(folder / "pair.idx"), bin = read_file(folder / "pair.bin");
  change(idx, bin);
  write_file(folder / "pair.idx", idx);
  write_file(folder / "pair.bin", bin);
  std::string error = error_of([&] { IndexedDataset(folder / "pair").check_all(); });
  const std::string name = folder.path().string() + "/";
  for (size_t at; (at = error.find(name)) != std::string::npos;) error.erase(at, name.size());
  return error;
}

TEST(IndexedDataset, SaysWhatIsWrongWithAFile) {
  using S = std::string&;
  EXPECT_EQ(error_with([](S idx, S) { idx.resize(20); }),
            "pair.idx: has 20 bytes, but the header of an index alone has 34: the file is cut off, "
            "or no Megatron index");
  EXPECT_EQ(error_with([](S idx, S) { idx[0] = 'X'; }),
            "pair.idx: does not begin with MMIDIDX: this is no index of Megatron's");
  EXPECT_EQ(error_with([](S idx, S) { idx[9] = 2; }),
            "pair.idx: has version 2; version 1 is the one there is");
  EXPECT_EQ(error_with([](S idx, S) { idx[17] = 9; }),
            "pair.idx: names type 9 for tokens; types are 1 to 8");
  EXPECT_EQ(error_with([](S idx, S) { idx[17] = 7; }),
            "pair.idx: holds float32 values; tokens are integers");
  EXPECT_EQ(error_with([](S idx, S) { idx.pop_back(); }),
            "pair.idx: has 93 bytes, but 3 sequences and 3 document entries take 94: the file is "
            "cut off");
  EXPECT_EQ(error_with([](S idx, S) { idx += std::string(3, '\0'); }),
            "pair.idx: has a mode for every sequence: multimodal data is not in this build");
  EXPECT_EQ(error_with([](S idx, S) { idx[25] = '\x7f'; }),
            "pair.idx: claims 9151314442816847875 sequences and 3 document entries, more than any "
            "file holds");
  EXPECT_EQ(error_with([](S, S bin) { bin.pop_back(); }),
            "pair.bin has 11 bytes, but pair.idx describes 12: the file is cut off");
  EXPECT_EQ(error_with([](S, S bin) { bin += "xx"; }),
            "pair.bin has 14 bytes, but pair.idx describes 12: the two files do not belong "
            "together");
  EXPECT_EQ(error_with([](S idx, S) { idx[46 + 8] = 4; }),
            "pair.idx: sequence 2 begins at byte 8, but the one before ends at 6");
  EXPECT_EQ(error_with([](S idx, S) { idx[38 + 3] = '\x80'; }),
            "pair.idx: sequence 1 has a length of -2147483647");
  EXPECT_EQ(error_with([](S idx, S) { idx[70] = 1; }),
            "pair.idx: lets the first document begin at sequence 1, not 0");
  EXPECT_EQ(error_with([](S idx, S) { idx[78] = 9; }),
            "pair.idx: document 1 begins at sequence 9, after one that begins at 0 of 3");
}

}  // namespace
}  // namespace phx
