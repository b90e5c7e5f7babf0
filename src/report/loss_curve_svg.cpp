#include "phalanx/report/loss_curve_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"

namespace phx {
namespace {

using Points = std::vector<std::pair<double, double>>;

// Told apart also by those who do not tell red from green (after Okabe and Ito).
constexpr std::array<std::string_view, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#e69f00", "#56b4e9", "#555555"};
constexpr std::string_view kInk = "#24292f", kSoftInk = "#6e7781", kGrid = "#e6e9ec";
constexpr int kLeft = 72, kRight = 28, kTop = 60, kBottom = 62;
constexpr int kTicksX = 8, kTicksY = 7;
constexpr double kLetterWidth = 6.6;  // of a 12-pixel sans-serif letter, on average

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += c;
    }
  }
  return result;
}

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

void draw_axes(const LossPlot& plot, const Frame& frame, std::string& svg) {
  const auto out = std::back_inserter(svg);
  const auto step = [](const std::vector<double>& t) { return t.size() > 1 ? t[1] - t[0] : 1.; };
  const auto y_ticks = round_ticks(frame.y_low, frame.y_high, kTicksY);
  for (const double tick : y_ticks) {
    fmt::format_to(out,
                   "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n"
                   "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\" fill=\"{6}\">{7}</text>\n",
                   frame.left, frame.right, frame.y(tick), kGrid, frame.left - 10,
                   frame.y(tick) + 4, kSoftInk, tick_label(tick, step(y_ticks)));
  }
  const auto x_ticks = round_ticks(frame.x_low, frame.x_high, kTicksX);
  for (const double tick : x_ticks) {
    fmt::format_to(out,
                   "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"{3}\"/>\n"
                   "<text x=\"{0:.1f}\" y=\"{4}\" text-anchor=\"middle\" fill=\"{5}\">{6}</text>\n",
                   frame.x(tick), frame.top, frame.bottom, kGrid, frame.bottom + 20, kSoftInk,
                   tick_label(tick, step(x_ticks)));
  }
  fmt::format_to(out, "<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"{4}\"/>\n", frame.left,
                 frame.top, frame.bottom, frame.right, "#afb8c1");
  fmt::format_to(out, "<text x=\"{}\" y=\"34\" font-size=\"18\" font-weight=\"600\">{}</text>\n",
                 kLeft, escaped(plot.title));
  fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                 (frame.left + frame.right) / 2, plot.height - 16, escaped(plot.x_label));
  fmt::format_to(out,
                 "<text transform=\"translate(20 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}"
                 "</text>\n",
                 (frame.top + frame.bottom) / 2, escaped(plot.y_label));
}

void draw_references(const LossPlot& plot, const Frame& frame, std::string& svg) {
  for (const ReferenceLine& line : plot.references) {
    fmt::format_to(
        std::back_inserter(svg),
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
        "stroke-dasharray=\"6 5\"/>\n"
        "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\" fill=\"{3}\" {6}>{7} ({8:.3f})</text>\n",
        frame.left, frame.right, frame.y(line.value), kSoftInk, frame.right - 6,
        frame.y(line.value) - 6,
        "paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"4\" stroke-linejoin=\"round\"",
        escaped(line.label), line.value);
  }
}

void draw_curve(const LossPlot& plot, const LossCurve& curve, std::string_view colour,
                const Frame& frame, std::string& svg) {
  const auto out = std::back_inserter(svg);
  const auto line = [&](const Points& points, double opacity, double width) {
    fmt::format_to(out,
                   "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-opacity=\"{}\" "
                   "stroke-width=\"{}\" stroke-linejoin=\"round\" stroke-linecap=\"round\"/>\n",
                   path_of(points, frame), colour, opacity, width);
  };
  const Points raw = finite_points(curve.points);
  if (plot.smoothing > 0.) {
    line(raw, 0.35, 1.);
    line(smoothed(raw, radius_of(plot, raw)), 1., 2.2);
  } else {
    line(raw, 1., 2.);
  }
  for (const auto& [x, loss] : finite_points(curve.validation)) {
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\" fill=\"#ffffff\" stroke=\"{}\" "
                   "stroke-width=\"1.8\"/>\n",
                   frame.x(x), frame.y(loss), colour);
  }
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
void draw_legend(const LossPlot& plot, const Frame& frame, std::string& svg) {
  const std::vector<LegendRow> rows = legend_rows(plot);
  const auto out = std::back_inserter(svg);
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
  fmt::format_to(out,
                 "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\" "
                 "fill=\"#ffffff\" fill-opacity=\"0.9\" stroke=\"{}\"/>\n",
                 left, top, width, height, kGrid);
  double y = top + 18;
  for (const LegendRow& row : rows) {
    if (row.is_dots) {
      fmt::format_to(out,
                     "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\" fill=\"#ffffff\" stroke=\"{}\" "
                     "stroke-width=\"1.8\"/>\n",
                     left + 23, y, row.colour);
    } else {
      fmt::format_to(out,
                     "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
                     "stroke-width=\"2.6\" stroke-linecap=\"round\"/>\n",
                     left + 12, left + 34, y, y, row.colour);
    }
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left + 44, y + 4,
                   escaped(row.text));
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
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, "
      "'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"{2}\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      plot.width, plot.height, kInk);
  draw_axes(plot, frame, svg);
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    draw_curve(plot, plot.curves[i], kColours[i % kColours.size()], frame, svg);
  }
  draw_references(plot, frame, svg);
  draw_legend(plot, frame, svg);
  return svg + "</svg>\n";
}

}  // namespace phx
