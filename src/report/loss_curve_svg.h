// Loss curves as one self-contained SVG: no script, no font or style from elsewhere, so that it
// shows in a README as it does in a browser.
#pragma once

#include <cstdint>
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
  // The strong line averages this share of the points to either side, twice. 0 draws the raw line
  // alone.
  double smoothing = 0.01;
  int width = 960, height = 540;
};

std::string draw_loss_plot(const LossPlot& plot);

// Numbers a person would put on an axis from `low` to `high`: steps of 1, 2 or 5 times a power of
// ten, about `count` of them, all inside.
std::vector<double> round_ticks(double low, double high, int count);

// Each value becomes the mean of those up to `radius` places away, twice. The window is narrow at
// the start, so that the steep first part of a loss curve is not drawn too low; at the end it has
// one side only.
std::vector<std::pair<double, double>> smoothed(std::span<const std::pair<double, double>> points,
                                                int64_t radius);

}  // namespace phx
