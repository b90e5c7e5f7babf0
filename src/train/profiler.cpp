#include "phalanx/train/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/report/op_table.h"
#include "phalanx/report/trace_events.h"

namespace phx {

namespace {

constexpr size_t kTableLines = 15;

double epoch_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

std::string rank_title(const Mesh& mesh) {
  if (mesh.size() == 1) return "rank 0";
  return str_cat("rank ", mesh.rank(), ": tp ", mesh.tp_rank(), ", pp ", mesh.pp_rank(), ", dp ",
                 mesh.dp_rank());
}

}  // namespace

Profiler::Profiler(const TrainConfig& config, const Mesh& mesh, Runtime& runtime,
                   Terminal& terminal)
    : config_(config), mesh_(mesh), runtime_(runtime), terminal_(terminal) {
  for (const int64_t rank : config_.profile_ranks)
    PHX_CHECK(!config_.profile || rank < mesh_.size(), "--profile-ranks ", rank,
              " is no rank of this run: there are ", mesh_.size(), ", counted from 0");
  if (config_.nvtx_ranges)
    trace_ = std::make_unique<OpTrace>(runtime_, OpTraceOptions{.times = false, .ranges = true});
}

bool Profiler::profiled(int rank) const {
  const std::vector<int64_t>& ranks = config_.profile_ranks;
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

void Profiler::before_iteration(int64_t done) {
  if (!config_.profile) return;
  if (open_ && done >= config_.profile_step_end) close(done);
  if (!open_ && done == config_.profile_step_start) open(done);
  const bool over = first_ && done > config_.profile_step_start;
  if (over) told_ = true;
  if (over && mesh_.rank() == 0)
    log_warning(str_cat("--profile: iteration ", config_.profile_step_start,
                        " is over, so nothing is profiled\n  hint: --profile-step-start ",
                        done + 10, " --profile-step-end ", done + 12));
  first_ = false;
}

void Profiler::finish(int64_t done) {
  if (open_) close(done);
  if (!config_.profile || told_ || mesh_.rank() != 0) return;
  log_warning(str_cat("--profile: nothing was profiled: the run ended after iteration ", done,
                      ", and iterations ", config_.profile_step_start + 1, " to ",
                      config_.profile_step_end,
                      " were asked for\n  hint: see --profile-step-start and --profile-step-end"));
}

// All ranks agree on when the picture begins: where clocks differ between machines, by as much as
// they differ.
void Profiler::open(int64_t done) {
  open_ = told_ = true;
  opened_at_ = done;
  runtime_.synchronize();
  double base = epoch_us();
  if (mesh_.world() != nullptr) {
    Tensor latest = empty({1}, DType::f64, runtime_.device(), Purpose::runtime);
    copy_from_host(latest, &base);
    mesh_.world()->all_reduce(latest, runtime_.stream(StreamName::compute), ReduceOp::max);
    base = to_values(latest)[0];
  }
  if (!profiled(mesh_.rank())) return;
  std::error_code ignored;
  std::filesystem::remove(file_of(mesh_.rank()), ignored);  // of an earlier run
  trace_.reset();
  runtime_.backend().open_profiler_window();
  trace_ = std::make_unique<OpTrace>(runtime_, OpTraceOptions{.times = true, .ranges = true});
  offset_us_ = epoch_us() - base;
}

void Profiler::close(int64_t done) {
  open_ = false;
  std::vector<OpRecord> records;
  bool written = false;
  if (profiled(mesh_.rank())) {
    records = trace_->collect();
    trace_.reset();
    runtime_.backend().close_profiler_window();
    if (config_.nvtx_ranges)
      trace_ = std::make_unique<OpTrace>(runtime_, OpTraceOptions{.times = false, .ranges = true});
    written = write(file_of(mesh_.rank()), trace_events(records, {.rank = mesh_.rank(),
                                                                  .title = rank_title(mesh_),
                                                                  .offset_us = offset_us_}));
  }
  if (mesh_.world() != nullptr) mesh_.world()->barrier();
  if (mesh_.rank() != 0) return;
  const Path trace = Path(config_.profile_dir) / "trace.json";
  const int64_t steps = done - opened_at_;
  if (mesh_.world() != nullptr) {
    const std::string all = events_of_ranks();
    written = !all.empty() && write(trace, all);
  }
  if (written)
    terminal_.print(str_cat("profile of iterations ", opened_at_ + 1, " to ", done, ": ",
                            trace.string(), ", to look at in ui.perfetto.dev or chrome://tracing"));
  if (records.empty()) return;
  const auto last =
      std::max_element(records.begin(), records.end(),
                       [](const OpRecord& a, const OpRecord& b) { return a.end_ms < b.end_ms; });
  terminal_.print(op_table(records, steps, last->end_ms / double(steps), kTableLines));
}

// A picture is not worth a run: what goes wrong is only told.
bool Profiler::write(const Path& path, const std::string& lines) const {
  try {
    std::filesystem::create_directories(config_.profile_dir);
    write_trace(path, lines);
    return true;
  } catch (const std::exception& error) {
    log_warning(str_cat("--profile: ", error.what()));
    return false;
  }
}

Path Profiler::file_of(int rank) const {
  const Path folder = config_.profile_dir;
  return folder / (mesh_.world() == nullptr ? "trace.json" : fmt::format("rank_{:05d}.json", rank));
}

// Where ranks do not share a file system each keeps its own file.
std::string Profiler::events_of_ranks() const {
  std::string all;
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    if (!profiled(rank)) continue;
    try {
      all += str_cat(all.empty() ? "" : ",\n", trace_lines(file_of(rank)));
    } catch (const std::exception& error) {
      log_warning(str_cat("--profile: rank ", rank, " is not in trace.json: ", error.what()));
    }
  }
  return all;
}

}  // namespace phx
