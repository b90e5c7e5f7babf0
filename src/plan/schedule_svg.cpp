#include "phalanx/plan/schedule_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/report/svg.h"

namespace phx {
namespace {

constexpr double kLeft = 64, kRight = 16, kTop = 56, kBottom = 52;
constexpr double kRow = 34, kBox = 28;
constexpr double kLegendStep = 150;

// By kind of compute step.
constexpr std::array kColours = {svg::kBlue, svg::kVermilion, svg::kGreen};

std::string fill_of(StepKind kind, int chunk, int chunks) {
  return svg::paler(kColours[static_cast<size_t>(kind)], 0.6 * chunk / chunks);
}

std::string_view text_colour(int chunk, int chunks) {
  return 2 * chunk < chunks ? svg::kWhite : svg::kInk;
}

std::string counted(int n, std::string_view thing) {
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

std::string title_of(const Schedule& schedule, const Timeline& timeline) {
  std::string title = schedule.name + ": " + counted(schedule.stages, "stage");
  if (schedule.chunks > 1) title += ", " + counted(schedule.chunks, "chunk") + " a rank";
  title += ", " + counted(schedule.micro_batches, "micro-batch");
  if (schedule.micro_batches > 1) title.insert(title.size() - 1, "e");
  return title + fmt::format("; bubble {:.1f} %", 100 * timeline.bubble());
}

void draw_box(const TimedStep& timed, const Schedule& schedule, double top, double scale,
              SvgPicture& picture) {
  const auto& [step, begin, end] = timed;
  const double x = kLeft + begin * scale, width = (end - begin) * scale;
  picture.rect(x, top, width, kBox,
               {{"rx", "2"},
                {"fill", fill_of(step.kind, step.chunk, schedule.chunks)},
                {"stroke", svg::kWhite}});
  picture.text(x + width / 2, top + kBox / 2 + 4, std::to_string(step.micro_batch),
               {{"text-anchor", "middle"}, {"fill", text_colour(step.chunk, schedule.chunks)}});
}

void draw_legend(const Schedule& schedule, const Timeline& timeline, double y,
                 SvgPicture& picture) {
  double x = kLeft;
  const auto entry = [&](const std::string& fill, const std::string& text) {
    picture.rect(x, y, 14, 14, {{"rx", "2"}, {"fill", fill}});
    picture.text(x + 20, y + 11, text);
    x += kLegendStep;
  };
  const bool splits = defers_weights(schedule);
  const std::array<std::string_view, 3> names = {
      "forward", splits ? "backward, inputs" : "backward", "backward, weights"};
  std::array<bool, 3> used = {};
  for (const auto& steps : timeline.ranks)
    for (const TimedStep& timed : steps) used[static_cast<int>(timed.step.kind)] = true;
  for (int kind = 0; kind < 3; ++kind)
    for (int chunk = 0; chunk < schedule.chunks && used[kind]; ++chunk)
      entry(fill_of(static_cast<StepKind>(kind), chunk, schedule.chunks),
            schedule.chunks == 1 ? std::string(names[kind])
                                 : fmt::format("{}, chunk {}", names[kind], chunk));
  entry("url(#bubble)", "bubble");
}

}  // namespace

std::string draw_schedule(const Schedule& schedule, const Timeline& timeline,
                          const DrawOptions& options) {
  PHX_CHECK(options.pixels_per_unit > 0, "a unit of time should have a width, not ",
            options.pixels_per_unit, " pixels");
  const double scale = options.pixels_per_unit, length = timeline.makespan * scale;
  const double legend = kLegendStep * (2 + 2 * schedule.chunks);
  const double width = std::max(kLeft + length + kRight, legend);
  const double height = kTop + kRow * schedule.stages + kBottom;
  SvgPicture picture(std::ceil(width), height);
  picture.define(
      "<pattern id=\"bubble\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
      "<rect width=\"6\" height=\"6\" fill=\"#f3f4f6\"/><path d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\" "
      "stroke=\"#d0d5da\"/></pattern>");
  picture.title(16, 30, title_of(schedule, timeline));
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const double top = kTop + kRow * rank;
    picture.text(kLeft - 10, top + kBox / 2 + 4, str_cat("rank ", rank),
                 {{"text-anchor", "end"}, {"fill", svg::kSoftInk}});
    picture.rect(kLeft, top, length, kBox, {{"rx", "2"}, {"fill", "url(#bubble)"}});
    for (const TimedStep& timed : timeline.ranks[rank])
      draw_box(timed, schedule, top, scale, picture);
  }
  draw_legend(schedule, timeline, kTop + kRow * schedule.stages + 16, picture);
  return std::move(picture).finish();
}

}  // namespace phx
