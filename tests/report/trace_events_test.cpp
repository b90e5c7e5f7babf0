#include "phalanx/report/trace_events.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using nlohmann::json;

std::vector<OpRecord> records() {
  return {{"matmul", {.flops = 2'000'000'000, .bytes = 1'000'000}, 1, 3},
          {.name = "forward",
           .begin_ms = 0,
           .end_ms = 4,
           .kind = OpKind::phase,
           .host_begin_ms = -1,
           .host_end_ms = 0.5}};
}

json parsed(const std::string& lines) { return json::parse("[" + lines + "]"); }

json named(const json& events, const std::string& name, int thread) {
  for (const json& event : events)
    if (event["name"] == name && event.value("tid", -1) == thread) return event;
  return {};
}

TEST(TraceEvents, HaveTheirTimeInMicrosecondsOnTheClockOfAllRanks) {
  const json events = parsed(trace_events(records(), {.rank = 3, .offset_us = 500}));
  const json kernel = named(events, "matmul", 1);  // the compute stream
  EXPECT_EQ(kernel["ph"], "X");
  EXPECT_EQ(kernel["pid"], 3);
  EXPECT_EQ(kernel["ts"], 1500);
  EXPECT_EQ(kernel["dur"], 2000);
  EXPECT_EQ(kernel["args"]["GFLOP"], 2);
  EXPECT_EQ(kernel["args"]["TFLOP/s"], 1);
}

TEST(TraceEvents, APhaseIsOnTheHostsLaneToo) {
  const json events = parsed(trace_events(records(), {.title = "rank 0"}));
  EXPECT_EQ(named(events, "forward", 1)["dur"], 4000);
  EXPECT_EQ(named(events, "forward", 0)["ts"], -1000);
  EXPECT_EQ(named(events, "forward", 0)["dur"], 1500);
  EXPECT_TRUE(named(events, "matmul", 0).is_null());
}

TEST(TraceEvents, NameTheRankAndOnlyTheStreamsThatWereUsed) {
  const std::string text = trace_events(records(), {.title = "rank 0: tp 1"});
  EXPECT_NE(text.find("rank 0: tp 1"), std::string::npos);
  EXPECT_NE(text.find("\"compute\""), std::string::npos);
  EXPECT_EQ(text.find("tensor parallel"), std::string::npos);
}

TEST(TraceEvents, FilesOfRanksGiveTheirLinesBack) {
  const TempFolder folder;
  const std::string lines = trace_events(records(), {});
  write_trace(folder.path() / "rank.json", lines);
  EXPECT_EQ(trace_lines(folder.path() / "rank.json"), lines);
  EXPECT_EQ(json::parse(read_file(folder.path() / "rank.json")).size(), 6u);
  write_file(folder.path() / "other.json", "{}");
  EXPECT_THROW(trace_lines(folder.path() / "other.json"), Error);
}

}  // namespace
}  // namespace phx
