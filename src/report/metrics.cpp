#include "phalanx/report/metrics.h"

#include <cerrno>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/json_lines.h"
#include "phalanx/base/log.h"

namespace phx {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
void put(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

Json router_json(const RouterReport& report) {
  Json object;
  for (const auto& [name, loss] : report.losses) object[name] = loss;
  object["most rows"] = report.most;
  object["fewest rows"] = report.fewest;
  object["entropy"] = report.entropy;
  object["dropped"] = report.dropped;
  if (!report.loads.empty()) object["loads"] = report.loads;
  return object;
}

Path folder_of(const Path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

void keep_as_old(const Path& path) {
  Path old = path;
  old += ".old";
  std::error_code code;
  std::filesystem::rename(path, old, code);
  if (code) throw_file_error("rename", path, code.value());
}

// Lines of iterations up to this one.
std::string lines_until(const Path& path, int64_t iteration) {
  std::string kept;
  read_json_lines(path, [&](const nlohmann::json& object, int64_t line) {
    const auto at = object.find("iteration");
    PHX_CHECK(at != object.end() && at->is_number_integer(), path.native(), ":", line,
              ": a line of metrics should have an \"iteration\"");
    // Keys come out sorted here; whoever reads JSON does not mind.
    if (at->get<int64_t>() <= iteration) kept += json_text(object) + '\n';
  });
  return kept;
}

// Makes the file ready to be appended to, and returns its name.
const Path& keep_until(const Path& path, int64_t iteration) {
  check_metrics_path(path);
  if (!std::filesystem::exists(path)) return path;
  if (iteration == 0) {  // a new run: what an older one wrote is kept beside it
    keep_as_old(path);
    return path;
  }
  std::string kept;
  try {
    kept = lines_until(path, iteration);
  } catch (const std::exception& error) {  // a machine that stopped may have left half a line
    log_warning(str_cat("--metrics-file: ", error.what(), "\n  it is kept as ", path.native(),
                        ".old, and a new one begins"));
    keep_as_old(path);
    return path;
  }
  write_file(path, kept);
  return path;
}

// Nothing if the line has no loads of this layer.
std::vector<double> loads_in(const nlohmann::json& layers, const std::string& layer) {
  if (!layers.is_object() || !layers.contains(layer) || !layers[layer].is_object()) return {};
  const auto found = layers[layer].find("loads");
  if (found == layers[layer].end() || !found->is_array()) return {};
  std::vector<double> loads;
  for (const nlohmann::json& load : *found)
    if (load.is_number()) loads.push_back(load.get<double>());
  return loads.size() == found->size() ? loads : std::vector<double>();
}

}  // namespace

MetricsFile::MetricsFile(const Path& path, int64_t resume_iteration)
    : file_(keep_until(path, resume_iteration)) {}

MetricsFile::MetricsFile(const Path& path) : file_((make_folder(folder_of(path)), path)) {}

void check_metrics_path(const Path& path) {
  std::error_code code;
  const bool folder = std::filesystem::is_directory(path, code);
  PHX_CHECK(!std::filesystem::exists(path, code) || std::filesystem::is_regular_file(path, code),
            "--metrics-file ", path.native(), " is ", folder ? "a folder" : "no regular file",
            ", but lines are appended to a file\n  hint: give the name of a file, such as ",
            folder ? (path / "metrics.jsonl").native() : std::string("metrics.jsonl"));
  if (!std::filesystem::is_directory(folder_of(path), code))
    throw_file_error("append to", path, ENOENT);
}

void MetricsFile::write(const IterationReport& report) {
  Json object;
  object["iteration"] = report.iteration;
  object["consumed samples"] = report.consumed_samples;
  if (report.skipped_samples > 0) object["skipped samples"] = report.skipped_samples;
  object["elapsed ms"] = report.milliseconds;
  put(object, "throughput", report.tflops_per_gpu);
  put(object, "energy per GPU", report.joules_per_gpu);
  put(object, "power per GPU", report.watts_per_gpu);
  object["learning rate"] = report.learning_rate;
  put(object, "decoupled learning rate", report.decoupled_learning_rate);
  object["global batch size"] = report.global_batch_size;
  for (const auto& [name, loss] : report.losses) object[name] = loss;
  object["loss scale"] = report.loss_scale;
  put(object, "grad norm", report.grad_norm);
  put(object, "num zeros", report.num_zeros);
  put(object, "params norm", report.params_norm);
  object["skipped iterations"] = report.skipped_iterations;
  object["nan iterations"] = report.nan_iterations;
  put(object, "tokens per second", report.tokens_per_second);
  put(object, "mfu", report.mfu);
  if (report.routers) object["routers"] = router_json(*report.routers);
  for (const auto& [layer, routers] : report.router_layers)
    object["router layers"][std::to_string(layer)] = router_json(routers);
  file_.write(json_text(object) + '\n');
}

void MetricsFile::write(const ValidationReport& report) {
  Json object, losses;
  for (const auto& [name, loss] : report.losses) losses[name + report.suffix] = loss;
  object["iteration"] = report.iteration;
  object["consumed samples"] = report.consumed_samples;
  if (!report.where.empty()) object["where"] = report.where;
  object["validation"] = losses;
  file_.write(json_text(object) + '\n');
}

LossHistory read_losses(const Path& path, const std::string& name) {
  LossHistory history;
  read_json_lines(path, [&](const nlohmann::json& object, int64_t) {
    const auto iteration = object.find("iteration");
    if (iteration == object.end() || !iteration->is_number()) return;
    const auto take = [&](const nlohmann::json& values, auto& points) {
      const auto loss = values.find(name);
      if (loss == values.end() || !loss->is_number()) return;
      points.emplace_back(iteration->get<double>(), loss->get<double>());
    };
    take(object, history.train);
    const auto validation = object.find("validation");
    // The check on the final model repeats the last point; a test set is another thing.
    if (validation != object.end() && validation->is_object() && !object.contains("where")) {
      take(*validation, history.validation);
    }
  });
  PHX_CHECK(!history.train.empty() || !history.validation.empty(), path.native(),
            ": no line has a number \"", name, "\"; is this a metrics file of a run?");
  return history;
}

ExpertLoads read_expert_loads(const Path& path, int64_t layer) {
  ExpertLoads loads;
  const std::string number = std::to_string(layer);
  read_json_lines(path, [&](const nlohmann::json& object, int64_t line) {
    const auto iteration = object.find("iteration");
    if (iteration == object.end() || !iteration->is_number()) return;
    std::vector<double> here = loads_in(object.value("router layers", nlohmann::json()), number);
    if (here.empty()) return;
    PHX_CHECK(loads.empty() || here.size() == loads[0].second.size(), path.native(), ":", line,
              ": ", here.size(), " experts in layer ", layer, ", but ", loads[0].second.size(),
              " in the lines before");
    loads.emplace_back(iteration->get<double>(), std::move(here));
  });
  PHX_CHECK(!loads.empty(), path.native(), ": no line has loads of experts in layer ", layer,
            "\n  hint: --moe-per-layer-logging writes them; layers are counted from 0, and not all "
            "of them need have experts");
  return loads;
}

}  // namespace phx
