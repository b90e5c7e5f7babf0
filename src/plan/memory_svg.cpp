#include "phalanx/plan/memory_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/plan/report.h"

namespace phx {

namespace {

// By purpose; told apart also by those who do not tell red from green (after Okabe and Ito).
constexpr std::array<std::string_view, kNumPurposes> kColours = {
    "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#d55e00", "#555555"};
constexpr std::string_view kInk = "#24292f", kSoftInk = "#6e7781", kGrid = "#d8dee4";
constexpr double kLeft = 96, kWidth = 640, kRight = 104, kTop = 76, kBottom = 44;
constexpr double kRow = 26, kBar = 18, kLegendStep = 118;

int64_t nice_step(int64_t most) {
  const double raw = double(most) / 6;
  double step = std::pow(2.0, std::floor(std::log2(std::max(raw, 1.0))));
  if (raw / step > 1.5) step *= 2;
  return int64_t(step);
}

class Drawing {
 public:
  Drawing(const RunPlan& plan, const MemoryPicture& picture)
      : plan_(plan), picture_(picture), ranges_(equal_stages(plan)) {
    most_ = picture.device_bytes;
    for (const RankPlan& rank : plan.stages) most_ = std::max(most_, rank.memory.reserved);
    most_ += most_ / 50;  // the longest bar ends before the frame
    bottom_ = kTop + kRow * double(ranges_.size());
  }

  std::string run() {
    const double width = kLeft + kWidth + kRight, height = bottom_ + kBottom;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"12\" fill=\"{2}\">\n"
        "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n",
        width, height, kInk);
    add("<text x=\"16\" y=\"24\" font-size=\"15\">{}</text>\n", picture_.title);
    legend();
    grid();
    for (size_t i = 0; i < ranges_.size(); ++i) bar(ranges_[i], kTop + kRow * double(i));
    if (picture_.device_bytes > 0) device();
    return svg_ + "</svg>\n";
  }

 private:
  template <class... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Parts>(parts)...);
  }
  double x(int64_t bytes) const { return kLeft + kWidth * double(bytes) / double(most_); }

  void legend() {
    double at = kLeft;
    for (int i = 0; i < kNumPurposes; ++i) {
      if (std::ranges::none_of(plan_.stages,
                               [&](const RankPlan& r) { return r.memory.at_peak[i] > 0; }))
        continue;
      add("<rect x=\"{0:.1f}\" y=\"40\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{1}\"/>"
          "<text x=\"{2:.1f}\" y=\"50\">{3}</text>\n",
          at, kColours[size_t(i)], at + 17, name(static_cast<Purpose>(i)));
      at += kLegendStep;
    }
  }

  void grid() {
    const int64_t step = nice_step(most_);
    for (int64_t bytes = 0; bytes <= most_; bytes += step)
      add("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>"
          "<text x=\"{0:.1f}\" y=\"{4:.1f}\" text-anchor=\"middle\" fill=\"{5}\">{6}</text>\n",
          x(bytes), kTop - 6, bottom_, kGrid, bottom_ + 18, kSoftInk, format_bytes(bytes));
  }

  void bar(const StageRange& range, double top) {
    const MemoryReport& memory = plan_.stages[size_t(range.first)].memory;
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{} {}</text>\n", kLeft - 8,
        top + kBar - 4, range.first == range.last ? "stage" : "stages", stage_label(range));
    int64_t at = 0;
    for (int i = 0; i < kNumPurposes; ++i) {
      const int64_t bytes = memory.at_peak[i];
      if (bytes == 0) continue;
      add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\">"
          "<title>{}: {}</title></rect>\n",
          x(at), top, x(at + bytes) - x(at), kBar, kColours[size_t(i)],
          name(static_cast<Purpose>(i)), format_bytes(bytes));
      at += bytes;
    }
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", x(at) + 6, top + kBar - 4,
        kSoftInk, format_bytes(at));
  }

  void device() {
    add("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
        "stroke-dasharray=\"5 4\"/>"
        "<text x=\"{0:.1f}\" y=\"{4:.1f}\" text-anchor=\"middle\">a rank has {5}</text>\n",
        x(picture_.device_bytes), kTop - 6, bottom_, kInk, bottom_ + 34,
        format_bytes(picture_.device_bytes));
  }

  const RunPlan& plan_;
  const MemoryPicture& picture_;
  std::vector<StageRange> ranges_;
  int64_t most_ = 0;
  double bottom_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw_memory(const RunPlan& plan, const MemoryPicture& picture) {
  return Drawing(plan, picture).run();
}

}  // namespace phx
