#include "phalanx/plan/schedule_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "phalanx/base/file.h"
#include "phalanx/parallel/pipeline/check.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

struct Picture {
  std::string file;
  Schedule schedule;
  StepDurations durations;
};

// The pictures of docs/pipeline.md: one model on one scale of time. A chunk is half a stage.
std::vector<Picture> pictures() {
  const ScheduleConfig config{.stages = 4, .micro_batches = 8};
  return {{"one_micro_batch.svg", one_f_one_b({.stages = 4, .micro_batches = 1}), {1, 1, 1}},
          {"one_f_one_b.svg", one_f_one_b(config), {1, 1, 1}},
          {"interleaved.svg",
           interleaved_one_f_one_b({.stages = 4, .chunks = 2, .micro_batches = 8}),
           {.5, .5, .5}},
          {"zero_bubble_h1.svg", zero_bubble_h1(config), {1, 1, 1}}};
}

std::string drawn(const Schedule& schedule, const StepDurations& durations) {
  return draw_schedule(schedule, simulate(schedule, durations));
}

TEST(DrawSchedule, TheDocumentsPicturesAreThoseOfTheSchedules) {
  const Path folder = Path(PHX_SOURCE_DIR) / "docs" / "pipeline";
  for (const auto& [file, schedule, durations] : pictures()) {
    check_schedule(schedule);
    if (std::getenv("PHX_WRITE_PICTURES") != nullptr)
      write_file(folder / file, drawn(schedule, durations));
    EXPECT_TRUE(read_file(folder / file) == drawn(schedule, durations))
        << file << " is not what is drawn now; PHX_WRITE_PICTURES=1 writes it anew";
  }
}

TEST(DrawSchedule, HasABoxForEveryStepWhereItsTimeIs) {
  const Schedule schedule = one_f_one_b({.stages = 2, .micro_batches = 2});
  const std::string svg =
      draw_schedule(schedule, simulate(schedule, {1, 1, 0}), {.pixels_per_unit = 10});
  EXPECT_THAT(svg, HasSubstr("1F1B: 2 stages, 2 micro-batches; bubble 33.3 %"));
  size_t boxes = 0;
  for (size_t at = svg.find("stroke=\"#ffffff\""); at != svg.npos;
       at = svg.find("stroke=\"#ffffff\"", at + 1))
    ++boxes;
  EXPECT_EQ(boxes, 8u);
  // Rank 0's backward of micro-batch 0 begins at 3: 64 + 3 * 10.
  EXPECT_THAT(svg, HasSubstr("<rect x=\"94\" y=\"56\" width=\"10\" height=\"28\" rx=\"2\" "
                             "fill=\"#d55e00\" stroke=\"#ffffff\"/>\n<text x=\"99\" y=\"74\" "
                             "text-anchor=\"middle\" fill=\"#ffffff\">0</text>"));
}

TEST(DrawSchedule, NamesWhatItUses) {
  const std::string split = drawn(zero_bubble_h1({.stages = 2, .micro_batches = 2}), {1, 1, 1});
  EXPECT_THAT(split, HasSubstr("backward, weights"));
  const std::string forwards =
      drawn(forward_only({.stages = 2, .chunks = 2, .micro_batches = 2}), {1, 1, 1});
  EXPECT_THAT(forwards, HasSubstr("forward, chunk 1"));
  EXPECT_THAT(forwards, ::testing::Not(HasSubstr("backward")));
}

}  // namespace
}  // namespace phx
