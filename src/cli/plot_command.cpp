#include "cli/plot_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/parse_args.h"
#include "train/loss_curve_svg.h"
#include "train/metrics.h"

namespace phx {
namespace {

// "label=path" or a path, whose label is then the file's name, or its folder's for metrics.jsonl.
LossCurve read_curve(const std::string& argument, const std::string& loss) {
  const size_t equals = argument.find('=');
  const bool labelled = equals != std::string::npos && !std::filesystem::exists(argument);
  const Path path = labelled ? argument.substr(equals + 1) : argument;
  std::string label = labelled ? argument.substr(0, equals) : path.stem().string();
  if (!labelled && label == "metrics" && path.has_parent_path()) {
    label = path.parent_path().filename().string();
  }
  LossHistory history = read_losses(path, loss);
  return {label, std::move(history.train), std::move(history.validation)};
}

ReferenceLine parse_reference(const std::string& argument) {
  const size_t equals = argument.rfind('=');
  double value = 0.;
  bool is_number = false;
  if (equals != std::string::npos) {
    const char* const end = argument.data() + argument.size();
    const auto result = std::from_chars(argument.data() + equals + 1, end, value);
    is_number = result.ec == std::errc() && result.ptr == end && std::isfinite(value);
  }
  PHX_CHECK(is_number, "--reference ", argument,
            ": should be label=value with a number, as in --reference \"unigram entropy=2.87\"");
  return {argument.substr(0, equals), value};
}

}  // namespace

int run_plot(std::span<const std::string> args) {
  CLI::App app("Draws the loss curves of one or several runs as an SVG.", "phalanx plot");
  std::vector<std::string> metrics, references;
  std::string output, loss = "lm loss";
  LossPlot plot{.title = "Training loss"};
  app.add_option("--metrics", metrics, "metrics files (JSON lines) of runs, as FILE or LABEL=FILE")
      ->required();
  app.add_option("--output", output, "the SVG file to write")->required();
  app.add_option("--title", plot.title, "heading")->capture_default_str();
  app.add_option("--loss", loss, "which loss of the metrics")->capture_default_str();
  app.add_option("--reference", references, "a horizontal line, as LABEL=VALUE; may be repeated");
  app.add_option("--smoothing", plot.smoothing,
                 "share of the points to either side that the strong line averages; 0 for none")
      ->check(CLI::Range(0., 1.))
      ->capture_default_str();
  app.footer(
      "Example:\n  phalanx plot --metrics runs/small/metrics.jsonl --output loss.svg "
      "--title \"Stories\" --reference \"unigram entropy=2.87\"");
  if (const auto exit_code = parse_args(app, args)) return *exit_code;

  plot.y_label = loss;
  for (const std::string& argument : references) {
    plot.references.push_back(parse_reference(argument));
  }
  for (const std::string& argument : metrics) plot.curves.push_back(read_curve(argument, loss));
  write_file(output, draw_loss_plot(plot));
  fmt::print("{}: {} {}\n", output, plot.curves.size(),
             plot.curves.size() == 1 ? "curve" : "curves");
  return 0;
}

}  // namespace phx
