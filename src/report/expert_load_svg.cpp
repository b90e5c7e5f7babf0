#include "phalanx/report/expert_load_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "phalanx/base/error.h"
#include "phalanx/report/loss_curve_svg.h"
#include "phalanx/report/svg.h"

namespace phx {
namespace {

constexpr std::string_view kFrame = "#afb8c1";
constexpr int kLeft = 72, kRight = 120, kTop = 60, kBottom = 62;
constexpr int kColumns = 180, kTicksX = 8, kMostHeight = 640;
constexpr int kRowsWithNumbers = 24;  // of more experts every 2nd, 5th, .. has its number

// Colours go by the logarithm: twice the mean is as far from it as half of it. They end at 4 times
// the mean and at a quarter, and have steps, so that neighbours of one colour are one rectangle.
constexpr int kSteps = 8;           // on either side of the mean
constexpr double kStepsDouble = 4;  // for a factor of two

int level_of(double load) {
  const double level = load > 0 ? std::log2(load) * kStepsDouble : -kSteps;
  return int(std::lround(std::clamp<double>(level, -kSteps, kSteps)));
}

std::string colour_of(int level) {
  const double part = std::abs(level) / double(kSteps);
  return svg::paler(level < 0 ? svg::kBlue : svg::kVermilion, 0.97 * (1 - part));
}

// Iterations after `begin` up to `end`, and the mean of their loads.
struct Column {
  double begin, end;
  std::vector<double> loads;
};

std::vector<Column> columns_of(const ExpertLoadPlot& plot) {
  const auto& points = plot.loads;
  const size_t count = std::min<size_t>(points.size(), kColumns);
  const double step = points.size() > 1 ? points[1].first - points[0].first : 1;
  double begin = std::max(0.0, points[0].first - step);
  std::vector<Column> columns;
  for (size_t c = 0; c < count; ++c) {
    const size_t first = c * points.size() / count, last = (c + 1) * points.size() / count;
    Column column{begin, points[last - 1].first, std::vector<double>(points[0].second.size())};
    for (size_t i = first; i < last; ++i)
      for (size_t e = 0; e < column.loads.size(); ++e)
        column.loads[e] += points[i].second[e] / double(last - first);
    begin = column.end;
    columns.push_back(std::move(column));
  }
  return columns;
}

struct Frame {
  double x_low, x_high, left, right, top, row;

  double x(double iteration) const {
    return left + (iteration - x_low) / (x_high - x_low) * (right - left);
  }
  double y(size_t expert) const { return top + row * double(expert); }
};

// One path a colour: a picture of many cells stays a small file.
void draw_cells(const std::vector<Column>& columns, const Frame& frame, SvgPicture& picture) {
  std::map<int, std::string> cells;
  for (size_t e = 0; e < columns[0].loads.size(); ++e) {
    for (size_t c = 0; c < columns.size();) {
      const int level = level_of(columns[c].loads[e]);
      size_t end = c + 1;
      while (end < columns.size() && level_of(columns[end].loads[e]) == level) ++end;
      cells[level] +=
          fmt::format("M{:.1f} {:.1f}H{:.1f}v{:.1f}H{:.1f}z", frame.x(columns[c].begin), frame.y(e),
                      frame.x(columns[end - 1].end), frame.row, frame.x(columns[c].begin));
      c = end;
    }
  }
  for (const auto& [level, commands] : cells)
    picture.path(commands, {{"fill", colour_of(level)}, {"shape-rendering", "crispEdges"}});
}

void draw_axes(const ExpertLoadPlot& plot, const Frame& frame, size_t experts,
               SvgPicture& picture) {
  const double bottom = frame.y(experts);
  size_t every = 1;
  for (const size_t larger : {2, 5, 10, 20, 50, 100})
    if (experts > every * kRowsWithNumbers) every = larger;
  for (size_t e = 0; e < experts; e += every)
    picture.text(frame.left - 10, frame.y(e) + frame.row / 2 + 4, fmt::format("{}", e),
                 {{"text-anchor", "end"}, {"fill", svg::kSoftInk}});
  for (const double tick : round_ticks(frame.x_low, frame.x_high, kTicksX)) {
    const double x = frame.x(tick);
    picture.line(x, bottom, x, bottom + 5, {{"stroke", kFrame}});
    picture.text(x, bottom + 20, fmt::format("{:g}", tick),
                 {{"text-anchor", "middle"}, {"fill", svg::kSoftInk}});
  }
  picture.rect(frame.left, frame.top, frame.right - frame.left, bottom - frame.top,
               {{"fill", "none"}, {"stroke", kFrame}});
  picture.title(kLeft, 34, plot.title);
  picture.text((frame.left + frame.right) / 2, bottom + 46, "iteration",
               {{"text-anchor", "middle"}});
  picture.text(
      0, 0, "expert",
      {{"transform", fmt::format("translate(20 {:.1f}) rotate(-90)", (frame.top + bottom) / 2)},
       {"text-anchor", "middle"}});
}

void draw_legend(const Frame& frame, size_t experts, SvgPicture& picture) {
  constexpr std::pair<int, const char*> kLabels[] = {{kSteps, "4 or more"},
                                                     {kSteps / 2, "2"},
                                                     {0, "1, the mean"},
                                                     {-kSteps / 2, "1/2"},
                                                     {-kSteps, "1/4 or less"}};
  const double height = std::min(frame.y(experts) - frame.top, 240.0) / (2 * kSteps + 1);
  const double left = frame.right + 18;
  const auto top = [&](int level) { return frame.top + height * (kSteps - level); };
  for (int level = kSteps; level >= -kSteps; --level)
    picture.rect(left, top(level), 14, height,
                 {{"fill", colour_of(level)}, {"shape-rendering", "crispEdges"}});
  picture.rect(left, frame.top, 14, height * (2 * kSteps + 1),
               {{"fill", "none"}, {"stroke", kFrame}});
  for (const auto& [level, label] : kLabels)
    picture.text(left + 21, top(level) + height / 2 + 4, label, {{"fill", svg::kSoftInk}});
  picture.text(left, frame.top - 10, "load", {{"fill", svg::kInk}});
}

}  // namespace

std::string draw_expert_load(const ExpertLoadPlot& plot) {
  PHX_CHECK(!plot.loads.empty() && !plot.loads[0].second.empty(), "the plot \"", plot.title,
            "\" has no load to draw");
  const size_t experts = plot.loads[0].second.size();
  for (const auto& [iteration, loads] : plot.loads)
    PHX_CHECK(loads.size() == experts, "the plot \"", plot.title, "\" has ", loads.size(),
              " experts at iteration ", iteration, ", and ", experts, " before");
  const std::vector<Column> columns = columns_of(plot);
  const double row = std::min(double(plot.row_height), double(kMostHeight) / double(experts));
  const Frame frame{.x_low = columns.front().begin,
                    .x_high = std::max(columns.back().end, columns.front().begin + 1e-9),
                    .left = kLeft,
                    .right = double(plot.width - kRight),
                    .top = kTop,
                    .row = row};
  SvgPicture picture(plot.width, kTop + row * double(experts) + kBottom);
  draw_cells(columns, frame, picture);
  draw_axes(plot, frame, experts, picture);
  draw_legend(frame, experts, picture);
  return std::move(picture).finish();
}

}  // namespace phx
