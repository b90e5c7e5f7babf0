#include "phalanx/data/indexed/indexed_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <set>

#include "data/indexed/example_pair.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[c >> 4];
    text += kDigits[c & 15];
  }
  return text;
}

TEST(IndexedWriter, WritesMegatronsBytes) {
  const TempFolder folder;
  write_example(folder / "pair");
  EXPECT_EQ(hex(read_file(folder / "pair.bin")), "010002000300040005000600");
  EXPECT_EQ(hex(read_file(folder / "pair.idx")),
            "4d4d49444944580000"                                // magic
            "0100000000000000"                                  // version
            "08"                                                // uint16
            "03000000000000000300000000000000"                  // sequences, document entries
            "030000000100000002000000"                          // lengths
            "000000000000000006000000000000000800000000000000"  // pointers
            "000000000000000002000000000000000300000000000000");
}

TEST(IndexedWriter, MergedPairsStandOneBehindTheOther) {
  const TempFolder folder;
  write_example(folder / "a");
  write_example(folder / "b");
  const std::vector<Path> inputs = {folder / "a", folder / "b"};
  merge_datasets(inputs, folder / "c");
  const IndexedDataset pair(folder / "c");
  pair.check_all();
  EXPECT_EQ(pair.num_sequences(), 6);
  std::vector<int64_t> starts;
  for (int64_t i = 0; i <= pair.num_documents(); ++i) starts.push_back(pair.document_start(i));
  EXPECT_THAT(starts, ElementsAre(0, 2, 3, 5, 6));
  EXPECT_THAT(tokens_of(pair, 5), ElementsAre(5, 6));
  write_example(folder / "wide", TokenCode::i32);
  const std::vector<Path> unlike = {folder / "a", folder / "wide"};
  EXPECT_THAT(error_of([&] { merge_datasets(unlike, folder / "d"); }),
              HasSubstr("wide.idx holds int32 tokens, but the pairs before it uint16"));
  EXPECT_FALSE(std::filesystem::exists(folder / "d.bin"));
}

TEST(IndexedWriter, RefusesTokensThatDoNotFit) {
  const TempFolder folder;
  IndexedWriter writer(folder / "pair", TokenCode::u16);
  EXPECT_EQ(error_of([&] { writer.add_sequence(std::vector<int32_t>{65536}); }),
            "token 65536 does not fit uint16, the type of the tokens of this file");
  EXPECT_ANY_THROW(writer.add_sequence(std::vector<int32_t>{-1}));
}

TEST(IndexedWriter, CannotMergeAPairIntoItselfOrNothing) {
  const TempFolder folder;
  write_example(folder / "a");
  const std::vector<Path> inputs = {folder / "a"};
  EXPECT_EQ(error_of([&] { merge_datasets(inputs, folder / "a"); }),
            "the output " + (folder / "a").string() + " is also one of the inputs");
  EXPECT_EQ(error_of([&] { merge_datasets({}, folder / "b"); }), "there are no pairs to merge");
}

TEST(IndexedWriter, ALengthOfZeroIsADocumentWithoutASequence) {
  const TempFolder folder;
  IndexedWriter writer(folder / "pair", TokenCode::u8);
  const std::byte tokens[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  const int32_t lengths[] = {2, 0, 1};
  writer.add_tokens(tokens);
  writer.add_lengths(lengths);
  EXPECT_EQ(writer.num_sequences(), 2);
  EXPECT_EQ(writer.num_documents(), 3);
  EXPECT_EQ(writer.num_tokens(), 3);
  writer.commit();
  const IndexedDataset pair(folder / "pair");
  EXPECT_EQ(pair.num_documents(), 3);
  EXPECT_THAT(tokens_of(pair, 1), ElementsAre(3));
}

TEST(AppendTokens, FloatsAreNoTokens) {
  std::vector<std::byte> bytes;
  EXPECT_EQ(error_of([&] { append_tokens({}, TokenCode::f32, bytes); }),
            "tokens cannot be written as float32: they are integers");
}

TEST(SpillFile, GivesBackWhatWasWrittenInWholePieces) {
  const TempFolder folder;
  SpillFile spill(folder / "pair");
  std::vector<int32_t> numbers(700'000);  // more than two pieces of a MiB
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = int32_t(i * 7);
  for (const int32_t& number : numbers) spill.write(std::as_bytes(std::span(&number, 1)));
  EXPECT_EQ(spill.size(), int64_t(numbers.size() * 4));
  for (int round = 0; round < 2; ++round) {
    std::vector<std::byte> all;
    spill.read_back([&](std::span<const std::byte> piece) {
      EXPECT_EQ(piece.size() % 4, 0u);
      all.insert(all.end(), piece.begin(), piece.end());
    });
    ASSERT_EQ(all.size(), numbers.size() * 4);
    EXPECT_EQ(std::memcmp(all.data(), numbers.data(), all.size()), 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "it has no name";
}

TEST(IndexedWriter, ADiskThatIsFullLeavesNothingBehind) {
  const TempFolder folder;
  // A limit on the size of files says the same as a full disk: a write fails halfway.
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 16, before.rlim_max };
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = error_of([&] {
    IndexedWriter writer(folder / "pair", TokenCode::u16);
    const std::vector<int32_t> tokens(1000, 7);
    for (int i = 0; i < 1000; ++i) {
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.commit();
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(error, HasSubstr("cannot write " + (folder / "pair.bin").string()));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// As many bytes of tokens and of index as the example's, so that only their content tells them
// apart.
void write_other(const Path& prefix, Disk& disk) {
  IndexedWriter writer(prefix, TokenCode::u16, disk);
  writer.add_sequence(std::vector<int32_t>{11, 12});
  writer.end_document();
  writer.add_sequence(std::vector<int32_t>{13});
  writer.add_sequence(std::vector<int32_t>{14, 15, 16});
  writer.end_document();
  writer.commit();
}

enum class Found { nothing, old_pair, new_pair, mixed };

Found found_in(const TempFolder& folder) {
  if (!std::filesystem::exists(folder / "pair.idx")) return Found::nothing;
  const std::string idx = read_file(folder / "pair.idx"), bin = read_file(folder / "pair.bin");
  const TempFolder beside;
  write_example(beside / "old");
  write_other(beside / "new", Disk::real());
  if (idx == read_file(beside / "old.idx") && bin == read_file(beside / "old.bin"))
    return Found::old_pair;
  if (idx == read_file(beside / "new.idx") && bin == read_file(beside / "new.bin"))
    return Found::new_pair;
  return Found::mixed;
}

int64_t calls_to_replace_a_pair() {
  const TempFolder folder;
  write_example(folder / "pair");
  testing::FaultyDisk disk;
  write_other(folder / "pair", disk);
  return disk.calls();
}

TEST(IndexedWriter, AProcessKilledAtAnyCallLeavesNoMixedPair) {
  const int64_t calls = calls_to_replace_a_pair();
  std::set<Found> seen;
  for (int64_t call = 1; call <= calls; ++call) {
    const TempFolder folder;
    write_example(folder / "pair");
    const pid_t child = ::fork();
    if (child == 0) {
      testing::FaultyDisk disk;
      disk.kill_at = call;
      write_other(folder / "pair", disk);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << call;
    const Found found = found_in(folder);
    EXPECT_NE(found, Found::mixed) << call;
    seen.insert(found);
  }
  EXPECT_EQ(seen, (std::set<Found>{Found::nothing, Found::old_pair, Found::new_pair}));
}

TEST(IndexedWriter, ACallThatFailsLeavesNoMixedPairAndNoRest) {
  const int64_t calls = calls_to_replace_a_pair();
  for (int64_t call = 1; call <= calls; ++call) {
    const TempFolder folder;
    write_example(folder / "pair");
    testing::FaultyDisk disk;
    disk.fail_from = disk.fail_until = call;
    disk.error = ENOSPC;
    bool failed = false;
    try {
      write_other(folder / "pair", disk);
    } catch (const std::exception& error) {
      failed = true;
      EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
    }
    const Found found = found_in(folder);
    EXPECT_NE(found, Found::mixed) << call;
    if (!failed) {
      EXPECT_EQ(found, Found::new_pair) << call;
    }
    // Removing what is left over may be what failed.
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      names.push_back(entry.path().filename());
    EXPECT_LE(names.size(), failed ? 2u : 3u) << call << ::testing::PrintToString(names);
  }
}

// Says what happens to names, and what is put on disk.
class NotingDisk : public Disk {
 public:
  int sync(int descriptor) override {
    const Path link = "/proc/self/fd/" + std::to_string(descriptor);
    note("sync " + short_name(std::filesystem::read_symlink(link)));
    return Disk::sync(descriptor);
  }
  int rename(const char* from, const char* to) override {
    note(short_name(from) + " -> " + short_name(to));
    return Disk::rename(from, to);
  }
  std::vector<std::string> notes;

 private:
  void note(std::string text) { notes.push_back(std::move(text)); }
  static std::string short_name(const Path& path) {
    std::string name = path.filename();
    if (name.starts_with("phalanx-test")) return "folder";
    for (const char* what : {".new", ".old"})  // behind it: who writes
      if (const size_t at = name.find(what); at != std::string::npos) return name.substr(0, at + 4);
    return name;
  }
};

TEST(IndexedWriter, EveryChangeOfANameIsOnDiskBeforeTheNext) {
  const TempFolder folder;
  write_example(folder / "pair");
  NotingDisk disk;
  write_other(folder / "pair", disk);
  std::vector<std::string> publishing(disk.notes.end() - 6, disk.notes.end());
  EXPECT_THAT(publishing,
              ElementsAre("pair.idx -> pair.idx.old", "sync folder", "pair.bin.new -> pair.bin",
                          "sync folder", "pair.idx.new -> pair.idx", "sync folder"));
  // Before that, both files were complete under names that nobody reads.
  std::vector<std::string> staging(disk.notes.begin(), disk.notes.end() - 6);
  EXPECT_EQ(staging.size(), 6u);
  EXPECT_THAT(staging[0], HasSubstr("sync pair.bin.new"));
  EXPECT_THAT(staging[3], HasSubstr("sync pair.idx.new"));
}

TEST(IndexedWriter, LeftoversOfKilledProcessesOfThisHostGo) {
  const TempFolder folder;
  const Path prefix = folder / "pair";
  // A child that is killed while it writes.
  const pid_t child = ::fork();
  if (child == 0) {
    IndexedWriter writer(prefix, TokenCode::u16);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  const auto names = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      names.insert(entry.path().filename().string());
    return names;
  };
  ASSERT_EQ(names().size(), 2u) << "tokens and index, under names that nobody reads";
  // Names like them that are not: of a living process, of another host, of another pair.
  const std::string name = *names().begin(), killed = std::to_string(child);
  const std::string start = name.substr(0, name.find("." + killed) + 1);
  const std::set<std::string> others = {start + std::to_string(::getppid()),
                                        "pair.bin.new.some-other-host." + killed,
                                        "pair2" + name.substr(4), "pair.bin.new"};
  for (const std::string& other : others) write_file(folder / other, "");
  write_example(prefix);
  std::set<std::string> expected = others;
  expected.insert({"pair.bin", "pair.idx"});
  EXPECT_EQ(names(), expected);
}

}  // namespace
}  // namespace phx
