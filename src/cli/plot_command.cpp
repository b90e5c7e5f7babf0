#include "phalanx/cli/plot_command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/report/expert_load_svg.h"
#include "phalanx/report/loss_curve_svg.h"
#include "phalanx/report/metrics.h"

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

std::optional<ReferenceLine> parse_reference(const std::string& argument) {
  const size_t equals = argument.rfind('=');
  if (equals == std::string::npos) return std::nullopt;
  try {
    return ReferenceLine{argument.substr(0, equals), parse_number(argument.substr(equals + 1))};
  } catch (const Error&) {
    return std::nullopt;
  }
}

void check_references(const OptionSet& options, Problems& problems) {
  for (const auto& item : options.at("reference").get()) {
    const std::string argument = item.get<std::string>();
    if (parse_reference(argument)) continue;
    problems.push_back({ProblemKind::rule, "--reference",
                        str_cat("--reference ", argument, " should be LABEL=VALUE with a number"),
                        "as in --reference \"unigram entropy=2.87\""});
  }
}

struct PlotOptions {
  std::vector<std::string> metrics, references;
  std::string output, title, loss;
  double smoothing = LossPlot{}.smoothing;
  bool expert_load = false;
  std::optional<int64_t> layer;

  template <class Field>
  void each(Field&& field) {
    field("metrics", metrics, "metrics files (JSON lines) of runs, each FILE or LABEL=FILE",
          Required{});
    field("output", output, "the SVG file to write", Required{});
    field("title", title, "heading", DefaultIs{"what is drawn"});
    field("loss", loss, "which loss of the metrics", DefaultIs{"lm loss"});
    field("reference", references, "horizontal lines, each LABEL=VALUE");
    field("smoothing", smoothing,
          "share of the points to either side that the strong line averages; 0 for none",
          InRange{0, 1});
    field("expert-load", expert_load,
          "instead: how busy each expert of a layer was, from a run with --moe-per-layer-logging");
    field("layer", layer, "this layer, counted from 0", NotNegative{}, DefaultIs{"0"});
  }
};

void check_one_file(const OptionSet& options, Problems& problems) {
  const size_t files = options.at("metrics").get().size();
  if (!options.active("expert-load") || files < 2) return;
  problems.push_back({ProblemKind::rule, "--expert-load",
                      str_cat("--expert-load draws one run, but --metrics names ", files, " files"),
                      "draw them one by one"});
}

std::vector<Rule> plot_rules() {
  std::vector<Rule> rules = {{"--reference is LABEL=VALUE", check_references},
                             {"--expert-load takes one file", check_one_file},
                             requires_option("layer", "expert-load", "it chooses what is drawn")};
  for (const char* name : {"loss", "reference", "smoothing"})
    rules.push_back(excludes("expert-load", name, "it is for curves of losses"));
  return rules;
}

void draw_losses(const PlotOptions& options) {
  const std::string loss = options.loss.empty() ? "lm loss" : options.loss;
  LossPlot plot{.title = options.title.empty() ? "Training loss" : options.title,
                .y_label = loss,
                .smoothing = options.smoothing};
  for (const std::string& argument : options.references) {
    plot.references.push_back(*parse_reference(argument));
  }
  for (const std::string& argument : options.metrics) {
    plot.curves.push_back(read_curve(argument, loss));
  }
  write_file(options.output, draw_loss_plot(plot));
  fmt::print("{}: {} {}\n", options.output, plot.curves.size(),
             plot.curves.size() == 1 ? "curve" : "curves");
}

void draw_experts(const PlotOptions& options) {
  const int64_t layer = options.layer.value_or(0);
  ExpertLoadPlot plot{.title = options.title,
                      .loads = read_expert_loads(options.metrics[0], layer)};
  if (plot.title.empty()) plot.title = fmt::format("Load of the experts of layer {}", layer);
  write_file(options.output, draw_expert_load(plot));
  fmt::print("{}: {} experts, {} points\n", options.output, plot.loads[0].second.size(),
             plot.loads.size());
}

}  // namespace

int run_plot(std::span<const std::string> args) {
  PlotOptions options;
  OptionSet set;
  set.add("Plot", options);
  const CommandHelp help = {
      "phalanx plot --metrics FILE ... --output FILE [flags]",
      "Draws the loss curves of one or several runs as an SVG, or with --expert-load how busy the\n"
      "experts of a layer were.",
      "phalanx plot --metrics runs/small/metrics.jsonl --output loss.svg "
      "--reference \"unigram entropy=2.87\""};
  if (const auto exit_code = parse_args(set, plot_rules(), help, args)) return *exit_code;
  options.expert_load ? draw_experts(options) : draw_losses(options);
  return 0;
}

}  // namespace phx
