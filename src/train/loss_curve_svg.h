// Loss curves as one self-contained SVG: no script, no font or style from elsewhere, so that it
// shows in a README as it does in a browser.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace phx {

struct LossCurve {
  std::string label;
  std::vector<std::pair<double, double>> points;      // x, loss; x ascending
  std::vector<std::pair<double, double>> validation;  // drawn as dots
};

struct ReferenceLine {
  std::string label;
  double value = 0.;
};

struct LossPlot {
  std::string title;
  std::string x_label = "iteration";
  std::string y_label = "loss";
  std::vector<LossCurve> curves = {};
  std::vector<ReferenceLine> references = {};  // horizontal and dashed
  // The half-life of the strong line's average, as a share of the points. 0 draws the raw line
  // alone.
  double smoothing = 0.01;
  int width = 960, height = 540;
};

std::string draw_loss_plot(const LossPlot& plot);

// Numbers a person would put on an axis from `low` to `high`: steps of 1, 2 or 5 times a power of
// ten, about `count` of them, all inside.
std::vector<double> round_ticks(double low, double high, int count);

// An average over both sides, so that a falling curve does not lag: a point d places away weighs
// 2^(-d / half_life).
std::vector<std::pair<double, double>> smoothed(std::span<const std::pair<double, double>> points,
                                                double half_life);

}  // namespace phx
