#include "phalanx/report/loss_curve_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/report/svg.h"

namespace phx {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr std::array kColours = {svg::kBlue,   svg::kVermilion, svg::kGreen, svg::kPurple,
                                 svg::kOrange, svg::kSky,       svg::kGrey};
constexpr std::string_view kGrid = "#e6e9ec", kAxis = "#afb8c1";
constexpr int kLeft = 72, kRight = 28, kTop = 60, kBottom = 62;
constexpr int kTicksX = 8, kTicksY = 7;
constexpr double kLetterWidth = 6.6;  // of a 12-pixel sans-serif letter, on average

// Ticks carry as many digits as their step needs.
std::string tick_label(double value, double step) {
  if (std::abs(value) >= 10000. && step >= 100.) {
    const bool millions = step >= 100000.;
    return fmt::format("{:g}{}", value / (millions ? 1e6 : 1e3), millions ? "M" : "k");
  }
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", value, std::min(digits, 9));
}

// From data to pixels.
struct Frame {
  double x_low, x_high, y_low, y_high;
  double left, right, top, bottom;

  double x(double value) const {
    return left + (value - x_low) / (x_high - x_low) * (right - left);
  }
  double y(double value) const {
    const double pixel = bottom - (value - y_low) / (y_high - y_low) * (bottom - top);
    return std::clamp(pixel, top, bottom);
  }
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void widen_if_flat() {
    if (low < high) return;
    const double room = std::max(1., std::abs(low)) * 0.5;
    low -= room;
    high += room;
  }
};

Points finite_points(const Points& points) {
  Points result;
  for (const auto& point : points) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) result.push_back(point);
  }
  return result;
}

int64_t radius_of(const LossPlot& plot, const Points& points) {
  return std::llround(plot.smoothing * static_cast<double>(points.size()));
}

Frame make_frame(const LossPlot& plot) {
  Range x, y;
  for (const LossCurve& curve : plot.curves) {
    for (const Points* points : {&curve.points, &curve.validation}) {
      for (const auto& [at, loss] : finite_points(*points)) {
        x.take(at);
        y.take(loss);
      }
    }
  }
  PHX_CHECK(x.low <= x.high, "the plot \"", plot.title, "\" has no finite point to draw");
  for (const ReferenceLine& line : plot.references) {
    PHX_CHECK(std::isfinite(line.value), "the reference line \"", line.label, "\" is not finite");
    y.take(line.value);
  }
  x.widen_if_flat();
  y.widen_if_flat();
  const double room = 0.05 * (y.high - y.low);
  const double bottom = y.low >= 0. ? std::max(0., y.low - room) : y.low - room;
  return {x.low,
          x.high,
          bottom,
          y.high + room,
          static_cast<double>(kLeft),
          static_cast<double>(plot.width - kRight),
          static_cast<double>(kTop),
          static_cast<double>(plot.height - kBottom)};
}

// At most two points a pixel column, its lowest and its highest: what one sees stays the same, and
// a million iterations stay a small file.
std::string path_of(const Points& points, const Frame& frame) {
  std::string path;
  const auto add = [&](const std::pair<double, double>& p) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", frame.x(p.first),
                        frame.y(p.second));
  };
  for (size_t i = 0; i < points.size();) {
    const int64_t column = std::llround(std::floor(frame.x(points[i].first)));
    size_t low = i, high = i, end = i;
    for (; end < points.size() && std::floor(frame.x(points[end].first)) == column; ++end) {
      if (points[end].second < points[low].second) low = end;
      if (points[end].second > points[high].second) high = end;
    }
    add(points[std::min(low, high)]);
    if (low != high) add(points[std::max(low, high)]);
    i = std::max(end, i + 1);
  }
  return path;
}

void draw_axes(const LossPlot& plot, const Frame& frame, SvgPicture& picture) {
  const auto step = [](const std::vector<double>& t) { return t.size() > 1 ? t[1] - t[0] : 1.; };
  const auto y_ticks = round_ticks(frame.y_low, frame.y_high, kTicksY);
  for (const double tick : y_ticks) {
    const double y = frame.y(tick);
    picture.line(frame.left, y, frame.right, y, {{"stroke", kGrid}});
    picture.text(frame.left - 10, y + 4, tick_label(tick, step(y_ticks)),
                 {{"text-anchor", "end"}, {"fill", svg::kSoftInk}});
  }
  const auto x_ticks = round_ticks(frame.x_low, frame.x_high, kTicksX);
  for (const double tick : x_ticks) {
    const double x = frame.x(tick);
    picture.line(x, frame.top, x, frame.bottom, {{"stroke", kGrid}});
    picture.text(x, frame.bottom + 20, tick_label(tick, step(x_ticks)),
                 {{"text-anchor", "middle"}, {"fill", svg::kSoftInk}});
  }
  picture.path(fmt::format("M{} {}V{}H{}", frame.left, frame.top, frame.bottom, frame.right),
               {{"fill", "none"}, {"stroke", kAxis}});
  picture.title(kLeft, 34, plot.title);
  picture.text((frame.left + frame.right) / 2, plot.height - 16, plot.x_label,
               {{"text-anchor", "middle"}});
  picture.text(0, 0, plot.y_label,
               {{"transform",
                 fmt::format("translate(20 {:.1f}) rotate(-90)", (frame.top + frame.bottom) / 2)},
                {"text-anchor", "middle"}});
}

void draw_references(const LossPlot& plot, const Frame& frame, SvgPicture& picture) {
  for (const ReferenceLine& line : plot.references) {
    const double y = frame.y(line.value);
    picture.line(frame.left, y, frame.right, y,
                 {{"stroke", svg::kSoftInk}, {"stroke-dasharray", "6 5"}});
    // A white border keeps it readable over a curve.
    picture.text(frame.right - 6, y - 6, fmt::format("{} ({:.3f})", line.label, line.value),
                 {{"text-anchor", "end"},
                  {"fill", svg::kSoftInk},
                  {"paint-order", "stroke"},
                  {"stroke", svg::kWhite},
                  {"stroke-width", "4"},
                  {"stroke-linejoin", "round"}});
  }
}

void draw_dot(double x, double y, std::string_view colour, SvgPicture& picture) {
  picture.circle(x, y, 3.6, {{"fill", svg::kWhite}, {"stroke", colour}, {"stroke-width", "1.8"}});
}

void draw_curve(const LossPlot& plot, const LossCurve& curve, std::string_view colour,
                const Frame& frame, SvgPicture& picture) {
  const auto line = [&](const Points& points, std::string_view opacity, std::string_view width) {
    picture.path(path_of(points, frame), {{"fill", "none"},
                                          {"stroke", colour},
                                          {"stroke-opacity", opacity},
                                          {"stroke-width", width},
                                          {"stroke-linejoin", "round"},
                                          {"stroke-linecap", "round"}});
  };
  const Points raw = finite_points(curve.points);
  if (plot.smoothing > 0.) {
    line(raw, "0.35", "1");
    line(smoothed(raw, radius_of(plot, raw)), "1", "2.2");
  } else {
    line(raw, "1", "2");
  }
  for (const auto& [x, loss] : finite_points(curve.validation))
    draw_dot(frame.x(x), frame.y(loss), colour, picture);
}

// A row a curve: its line, its name, where it ended.
struct LegendRow {
  std::string text;
  std::string_view colour;
  bool is_dots = false;
};

std::vector<LegendRow> legend_rows(const LossPlot& plot) {
  std::vector<LegendRow> rows;
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    const LossCurve& curve = plot.curves[i];
    const std::string_view colour = kColours[i % kColours.size()];
    const Points raw = finite_points(curve.points), dots = finite_points(curve.validation);
    if (!raw.empty()) {
      const double last = smoothed(raw, radius_of(plot, raw)).back().second;
      rows.push_back({fmt::format("{}: {:.3f}", curve.label, last), colour});
    }
    if (!dots.empty()) {
      rows.push_back(
          {fmt::format("{}, validation: {:.3f}", curve.label, dots.back().second), colour, true});
    }
  }
  return rows;
}

// Loss curves fall, so the upper right corner is free, below a reference line up there.
void draw_legend(const LossPlot& plot, const Frame& frame, SvgPicture& picture) {
  const std::vector<LegendRow> rows = legend_rows(plot);
  size_t longest = 0;
  for (const LegendRow& row : rows) longest = std::max(longest, row.text.size());
  const double width = 52 + kLetterWidth * static_cast<double>(longest);
  const double height = 14 + 22. * static_cast<double>(rows.size());
  double top = frame.top + 10;
  for (const ReferenceLine& line : plot.references) {
    const double y = frame.y(line.value);
    if (y + 10 > top && y - 22 < top + height && y < (frame.top + frame.bottom) / 2) top = y + 10;
  }
  const double left = frame.right - 8 - width;
  picture.rect(left, top, width, height,
               {{"rx", "6"}, {"fill", svg::kWhite}, {"fill-opacity", "0.9"}, {"stroke", kGrid}});
  double y = top + 18;
  for (const LegendRow& row : rows) {
    if (row.is_dots) {
      draw_dot(left + 23, y, row.colour, picture);
    } else {
      picture.line(left + 12, y, left + 34, y,
                   {{"stroke", row.colour}, {"stroke-width", "2.6"}, {"stroke-linecap", "round"}});
    }
    picture.text(left + 44, y + 4, row.text);
    y += 22;
  }
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  PHX_ASSERT(low < high && count > 0, "ticks from ", low, " to ", high);
  const double rough = (high - low) / count;
  const double power = std::pow(10., std::floor(std::log10(rough)));
  double step = 10. * power;
  for (const double factor : {5., 2., 1.}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  // From whole numbers, so that rounding does not add up; the slack lets an end be a tick.
  for (double i = std::ceil(low / step - 1e-9); i <= std::floor(high / step + 1e-9); ++i) {
    ticks.push_back(i * step + 0.);  // + 0: not "-0"
  }
  return ticks;
}

std::vector<std::pair<double, double>> smoothed(std::span<const std::pair<double, double>> points,
                                                int64_t radius) {
  Points result(points.begin(), points.end());
  const int64_t n = static_cast<int64_t>(points.size());
  std::vector<double> sums(points.size() + 1, 0.);
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + result[i].second;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t reach = std::min(radius, i);
      const int64_t begin = i - reach, end = std::min(i + reach + 1, n);
      result[i].second = (sums[end] - sums[begin]) / static_cast<double>(end - begin);
    }
  }
  return result;
}

std::string draw_loss_plot(const LossPlot& plot) {
  PHX_CHECK(plot.width >= 320 && plot.height >= 240,
            "a plot should have at least 320 x 240 pixels, ", "but it has ", plot.width, " x ",
            plot.height);
  const Frame frame = make_frame(plot);
  SvgPicture picture(plot.width, plot.height);
  draw_axes(plot, frame, picture);
  for (size_t i = 0; i < plot.curves.size(); ++i)
    draw_curve(plot, plot.curves[i], kColours[i % kColours.size()], frame, picture);
  draw_references(plot, frame, picture);
  draw_legend(plot, frame, picture);
  return std::move(picture).finish();
}

}  // namespace phx
