// How busy each expert of a layer was in the course of a run, as one self-contained SVG: iterations
// from left to right, a row for each expert, colours for its load.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace phx {

struct ExpertLoadPlot {
  std::string title;
  // Iteration, and each expert's rows as a multiple of the mean; iterations ascending.
  std::vector<std::pair<double, std::vector<double>>> loads;
  int width = 960, row_height = 20;  // rows are lower where experts are many
};

// Runs with more iterations than columns are drawn as means over neighbours.
std::string draw_expert_load(const ExpertLoadPlot& plot);

}  // namespace phx
