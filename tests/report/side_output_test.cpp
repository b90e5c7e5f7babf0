#include "phalanx/report/side_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "phalanx/base/file.h"
#include "phalanx/report/metrics.h"
#include "phalanx/report/tensorboard.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What is logged while f runs.
template <class F>
std::string logged(F&& f) {
  ::testing::internal::CaptureStderr();
  log_to(std::make_shared<Terminal>(stdout, stderr, TerminalMode::plain), LogLevel::info);
  f();
  log_to(std::make_shared<Terminal>(), LogLevel::info);
  return ::testing::internal::GetCapturedStderr();
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

struct FakeDisk {
  bool full = false;
  int opened = 0;
  std::string written;
};
struct FakeFile {
  FakeDisk& disk;
  void write(char c) {
    if (disk.full) throw_error("cannot write /x: No space left on device");
    disk.written += c;
  }
  bool in_place() const { return true; }
};

TEST(SideOutput, AFullDiskIsToldOnceAndTriedAgainLater) {
  FakeDisk disk;
  const auto open = [&] {
    ++disk.opened;
    return std::make_unique<FakeFile>(disk);
  };
  SideOutput<FakeFile> output("--metrics-file /x", open, open, 10ms);
  const std::string log = logged([&] {
    output.write('a');
    disk.full = true;
    for (int i = 0; i < 3; ++i) {
      output.write('b');
      std::this_thread::sleep_for(12ms);
    }
    EXPECT_TRUE(output.failing());
    disk.full = false;
    output.write('c');
    output.write('d');
  });
  EXPECT_EQ(disk.written, "acd");
  EXPECT_EQ(disk.opened, 4) << "at the start, twice in vain, and then";
  EXPECT_EQ(count(log, "warning: --metrics-file /x: cannot write /x: No space left"), 1) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("the run goes on without it"),
                         HasSubstr("--metrics-file /x can be written again")));
}

TEST(SideOutput, BetweenTwoTriesTheDiskIsLeftAlone) {
  FakeDisk disk{.full = true};
  const auto open = [&] {
    ++disk.opened;
    return std::make_unique<FakeFile>(disk);
  };
  SideOutput<FakeFile> output("x", open, open, 1h);
  logged([&] {
    for (int i = 0; i < 100; ++i) output.write('b');
  });
  EXPECT_EQ(disk.opened, 1);
}

TEST(SideOutput, AFileThatCannotBeOpenedAtTheStartDoesNotEndTheRun) {
  const std::string log = logged([] {
    SideOutput<FakeFile> output("--tensorboard-dir /y",
                                []() -> std::unique_ptr<FakeFile> { throw_error("no room"); }, {});
    EXPECT_TRUE(output.failing());
  });
  EXPECT_THAT(log, HasSubstr("--tensorboard-dir /y: no room"));
}

IterationReport report_of(int64_t iteration) {
  IterationReport report;
  report.iteration = iteration;
  report.losses = {{"lm loss", 2.}};
  return report;
}

TEST(SideOutput, MetricsOfARemovedFolderGoOnInANewFile) {
  const TempFolder folder;
  const Path path = folder / "logs" / "metrics.jsonl";
  make_folder(path.parent_path());
  SideOutput<MetricsFile> output(
      "--metrics-file " + path.string(), [&] { return std::make_unique<MetricsFile>(path, 0); },
      [&] { return std::make_unique<MetricsFile>(path); });
  const std::string log = logged([&] {
    output.write(report_of(1));
    std::filesystem::remove_all(folder / "logs");
    output.write(report_of(2));
    output.write(report_of(3));
  });
  EXPECT_EQ(count(log, path.string() + " is gone: it is made anew"), 1) << log;
  EXPECT_EQ(read_losses(path).train.size(), 2u);
}

TEST(SideOutput, TensorBoardOfARemovedFolderGoesOnInANewFile) {
  const TempFolder folder;
  const auto open = [&] { return std::make_unique<TensorBoardWriter>(folder / "tb"); };
  SideOutput<TensorBoardWriter> output("--tensorboard-dir tb", open, open);
  const std::string log = logged([&] {
    output.write(report_of(1));
    std::filesystem::remove_all(folder / "tb");
    output.write(report_of(2));
  });
  EXPECT_THAT(log, HasSubstr("--tensorboard-dir tb is gone: it is made anew"));
  EXPECT_FALSE(std::filesystem::is_empty(folder / "tb"));
}

TEST(SideOutput, AMetricsFileWithHalfALineIsPutAsideWhenARunResumes) {
  const TempFolder folder;
  write_file(folder / "m", "{\"iteration\":1,\"lm loss\":3}\n{\"iterat\n{\"iteration\":3}\n");
  const std::string log = logged([&] { MetricsFile(folder / "m", 5).write(report_of(6)); });
  EXPECT_THAT(log, HasSubstr("m.old, and a new one begins"));
  EXPECT_TRUE(std::filesystem::exists(folder / "m.old"));
  EXPECT_EQ(read_losses(folder / "m").train.size(), 1u);
}

}  // namespace
}  // namespace phx
