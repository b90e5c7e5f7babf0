#include "phalanx/plan/memory_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/plan/report.h"
#include "phalanx/report/svg.h"

namespace phx {

namespace {

constexpr std::array<std::string_view, kNumPurposes> kColours = {
    svg::kBlue, svg::kSky, svg::kGreen, svg::kOrange, svg::kPurple, svg::kVermilion, svg::kGrey};
constexpr std::string_view kGrid = "#d8dee4";
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
  Drawing(const RunPlan& plan, const MemoryPicture& about)
      : plan_(plan),
        about_(about),
        ranges_(equal_stages(plan)),
        bottom_(kTop + kRow * double(ranges_.size())),
        picture_(kLeft + kWidth + kRight, bottom_ + kBottom) {
    most_ = about.device_bytes;
    for (const RankPlan& rank : plan.stages) most_ = std::max(most_, rank.memory.reserved);
    most_ += most_ / 50;  // the longest bar ends before the frame
  }

  std::string run() && {
    picture_.title(16, 24, about_.title);
    legend();
    grid();
    for (size_t i = 0; i < ranges_.size(); ++i) bar(ranges_[i], kTop + kRow * double(i));
    if (about_.device_bytes > 0) device();
    return std::move(picture_).finish();
  }

 private:
  double x(int64_t bytes) const { return kLeft + kWidth * double(bytes) / double(most_); }

  void legend() {
    double at = kLeft;
    for (int i = 0; i < kNumPurposes; ++i) {
      if (std::ranges::none_of(plan_.stages,
                               [&](const RankPlan& r) { return r.memory.at_peak[i] > 0; }))
        continue;
      picture_.rect(at, 40, 12, 12, {{"rx", "2"}, {"fill", kColours[size_t(i)]}});
      picture_.text(at + 17, 50, name(static_cast<Purpose>(i)));
      at += kLegendStep;
    }
  }

  void grid() {
    const int64_t step = nice_step(most_);
    for (int64_t bytes = 0; bytes <= most_; bytes += step) {
      picture_.line(x(bytes), kTop - 6, x(bytes), bottom_, {{"stroke", kGrid}});
      picture_.text(x(bytes), bottom_ + 18, format_bytes(bytes),
                    {{"text-anchor", "middle"}, {"fill", svg::kSoftInk}});
    }
  }

  void bar(const StageRange& range, double top) {
    const MemoryReport& memory = plan_.stages[size_t(range.first)].memory;
    picture_.text(kLeft - 8, top + kBar - 4,
                  str_cat(range.first == range.last ? "stage " : "stages ", stage_label(range)),
                  {{"text-anchor", "end"}});
    int64_t at = 0;
    for (int i = 0; i < kNumPurposes; ++i) {
      const int64_t bytes = memory.at_peak[i];
      if (bytes == 0) continue;
      picture_.rect(x(at), top, x(at + bytes) - x(at), kBar, {{"fill", kColours[size_t(i)]}},
                    str_cat(name(static_cast<Purpose>(i)), ": ", format_bytes(bytes)));
      at += bytes;
    }
    picture_.text(x(at) + 6, top + kBar - 4, format_bytes(at), {{"fill", svg::kSoftInk}});
  }

  void device() {
    const double at = x(about_.device_bytes);
    picture_.line(at, kTop - 6, at, bottom_, {{"stroke", svg::kInk}, {"stroke-dasharray", "5 4"}});
    picture_.text(at, bottom_ + 34, "a rank has " + format_bytes(about_.device_bytes),
                  {{"text-anchor", "middle"}});
  }

  const RunPlan& plan_;
  const MemoryPicture& about_;
  std::vector<StageRange> ranges_;
  int64_t most_ = 0;
  double bottom_ = 0;
  SvgPicture picture_;
};

}  // namespace

std::string draw_memory(const RunPlan& plan, const MemoryPicture& picture) {
  return Drawing(plan, picture).run();
}

}  // namespace phx
