#include "train/metrics.h"

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/json_lines.h"

namespace phx {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
void put(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

// Makes the file ready to be appended to, and returns its name.
const Path& keep_until(const Path& path, int64_t iteration) {
  if (!std::filesystem::exists(path)) return path;
  PHX_CHECK(std::filesystem::is_regular_file(path), "--metrics-file ", path.native(), " is ",
            std::filesystem::is_directory(path) ? "a folder" : "no regular file",
            ", but lines are appended to a file\n  hint: give the name of a file, such as ",
            std::filesystem::is_directory(path) ? (path / "metrics.jsonl").native()
                                                : std::string("metrics.jsonl"));
  if (iteration == 0) {  // a new run: what an older one wrote is kept beside it
    Path old = path;
    old += ".old";
    std::filesystem::rename(path, old);
    return path;
  }
  std::string kept;
  read_json_lines(path, [&](const nlohmann::json& object, int64_t line) {
    const auto at = object.find("iteration");
    PHX_CHECK(at != object.end() && at->is_number_integer(), path.native(), ":", line,
              ": a line of metrics should have an \"iteration\"");
    // Keys come out sorted here; whoever reads JSON does not mind.
    if (at->get<int64_t>() <= iteration) kept += json_text(object) + '\n';
  });
  write_file(path, kept);
  return path;
}

}  // namespace

MetricsFile::MetricsFile(const Path& path, int64_t resume_iteration)
    : file_(keep_until(path, resume_iteration)) {}

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

}  // namespace phx
