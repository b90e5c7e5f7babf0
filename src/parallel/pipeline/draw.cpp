#include "phalanx/parallel/pipeline/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr std::string_view kInk = "#24292f", kSoftInk = "#6e7781";
constexpr double kLeft = 64, kRight = 16, kTop = 56, kBottom = 52;
constexpr double kRow = 34, kBox = 28;
constexpr double kLegendStep = 150;

struct Colour {
  int red, green, blue;
};
// By kind of compute step; told apart also by those who do not tell red from green (after Okabe and
// Ito).
constexpr std::array<Colour, 3> kColours = {{{0, 114, 178}, {213, 94, 0}, {0, 158, 115}}};

std::string fill_of(StepKind kind, int chunk, int chunks) {
  const Colour& full = kColours[static_cast<int>(kind)];
  const auto paler = [&](int value) { return value + (255 - value) * 6 * chunk / (10 * chunks); };
  return fmt::format("#{:02x}{:02x}{:02x}", paler(full.red), paler(full.green), paler(full.blue));
}

std::string_view text_colour(int chunk, int chunks) {
  return 2 * chunk < chunks ? "#ffffff" : kInk;
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
              std::string& svg) {
  const auto& [step, begin, end] = timed;
  const double x = kLeft + begin * scale, width = (end - begin) * scale;
  fmt::format_to(std::back_inserter(svg),
                 "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" "
                 "fill=\"{}\" stroke=\"#ffffff\"/>"
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
                 x, top, width, kBox, fill_of(step.kind, step.chunk, schedule.chunks),
                 x + width / 2, top + kBox / 2 + 4, text_colour(step.chunk, schedule.chunks),
                 step.micro_batch);
}

void draw_legend(const Schedule& schedule, const Timeline& timeline, double y, std::string& svg) {
  const auto out = std::back_inserter(svg);
  double x = kLeft;
  const auto entry = [&](const std::string& fill, const std::string& text) {
    fmt::format_to(out,
                   "<rect x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"14\" height=\"14\" rx=\"2\" "
                   "fill=\"{2}\"/><text x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n",
                   x, y, fill, x + 20, y + 11, text);
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
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, "
      "'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"{2}\">\n"
      "<defs><pattern id=\"bubble\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
      "<rect width=\"6\" height=\"6\" fill=\"#f3f4f6\"/><path d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\" "
      "stroke=\"#d0d5da\"/></pattern></defs>\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n"
      "<text x=\"{3}\" y=\"30\" font-size=\"15\" font-weight=\"600\">{4}</text>\n",
      width, height, kInk, 16, title_of(schedule, timeline));
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const double top = kTop + kRow * rank;
    fmt::format_to(std::back_inserter(svg),
                   "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">rank {}</text>\n"
                   "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" "
                   "fill=\"url(#bubble)\"/>\n",
                   kLeft - 10, top + kBox / 2 + 4, kSoftInk, rank, kLeft, top, length, kBox);
    for (const TimedStep& timed : timeline.ranks[rank]) draw_box(timed, schedule, top, scale, svg);
  }
  draw_legend(schedule, timeline, kTop + kRow * schedule.stages + 16, svg);
  return svg + "</svg>\n";
}

}  // namespace phx
