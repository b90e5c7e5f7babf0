#include "phalanx/train/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {

namespace {

constexpr const char* kStreamTitles[kNumStreams] = {"compute",
                                                    "host to device",
                                                    "device to host",
                                                    "tensor parallel",
                                                    "context parallel",
                                                    "expert parallel",
                                                    "data parallel",
                                                    "pipeline: forward in",
                                                    "pipeline: forward out",
                                                    "pipeline: backward in",
                                                    "pipeline: backward out"};
constexpr int kHostThread = 0;  // streams follow it
constexpr size_t kTableLines = 15;

double epoch_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

int thread_of(StreamName stream) { return 1 + int(stream); }

const char* category(OpKind kind) {
  switch (kind) {
    case OpKind::kernel:
      return "kernel";
    case OpKind::communication:
      return "communication";
    case OpKind::phase:
      return "phase";
  }
  return "";
}

std::string rank_title(const Mesh& mesh) {
  if (mesh.size() == 1) return "rank 0";
  return str_cat("rank ", mesh.rank(), ": tp ", mesh.tp_rank(), ", pp ", mesh.pp_rank(), ", dp ",
                 mesh.dp_rank());
}

// The events of a file, one a line: "[", events with commas between, "]".
std::string event_lines(const Path& path) {
  std::string text = read_file(path);
  const size_t begin = text.find('\n'), end = text.rfind("\n]");
  PHX_CHECK(begin != std::string::npos && end != std::string::npos && begin < end, path.string(),
            " is not a file of events that a rank wrote");
  return text.substr(begin + 1, end - begin - 1);
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
    written = write(file_of(mesh_.rank()), events(records));
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
    write_file(path, str_cat("[\n", lines, "\n]\n"));
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

// Trace events, one a line with commas between. Phases lie around their kernels on the lane of
// their stream, and once more on the host's lane: there one sees how far the host is ahead.
std::string Profiler::events(const std::vector<OpRecord>& records) const {
  const int pid = mesh_.rank();
  std::string out;
  const auto name_thread = [&](int thread, const char* title) {
    out += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\","
        "\"args\":{{\"name\":\"{}\"}}}}",
        pid, thread, title);
  };
  out += fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"{}\"}}}}", pid,
      rank_title(mesh_));
  name_thread(kHostThread, "host");
  bool used[kNumStreams] = {};
  for (const OpRecord& op : records) used[size_t(op.stream)] = true;
  for (int stream = 0; stream < kNumStreams; ++stream)
    if (used[stream]) name_thread(thread_of(StreamName(stream)), kStreamTitles[stream]);
  const auto add = [&](const OpRecord& op, int thread, double begin_ms, double end_ms) {
    out += fmt::format(
        ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"cat\":\"{}\",\"ts\":{:.3f},"
        "\"dur\":{:.3f}",
        pid, thread, op.name, category(op.kind), offset_us_ + begin_ms * 1e3,
        (end_ms - begin_ms) * 1e3);
    const double seconds = (end_ms - begin_ms) / 1e3;
    if (op.cost.bytes > 0 && seconds > 0)
      out += fmt::format(
          ",\"args\":{{\"GFLOP\":{:.4g},\"MB\":{:.4g},\"TFLOP/s\":{:.3g},\"TB/s\":{:.3g}}}",
          double(op.cost.flops) / 1e9, double(op.cost.bytes) / 1e6,
          double(op.cost.flops) / seconds / 1e12, double(op.cost.bytes) / seconds / 1e12);
    out += "}";
  };
  for (const OpRecord& op : records) {
    add(op, thread_of(op.stream), op.begin_ms, op.end_ms);
    if (op.kind == OpKind::phase) add(op, kHostThread, op.host_begin_ms, op.host_end_ms);
  }
  return out;
}

// Where ranks do not share a file system each keeps its own file.
std::string Profiler::events_of_ranks() const {
  std::string all;
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    if (!profiled(rank)) continue;
    try {
      all += str_cat(all.empty() ? "" : ",\n", event_lines(file_of(rank)));
    } catch (const std::exception& error) {
      log_warning(str_cat("--profile: rank ", rank, " is not in trace.json: ", error.what()));
    }
  }
  return all;
}

std::string op_table(const std::vector<OpRecord>& records, int64_t steps, double step_ms,
                     size_t lines) {
  const auto line = [](const std::string& name, const std::string& times, double ms,
                       const std::string& flops, const std::string& bytes, double share) {
    return fmt::format("{:<28} {:>6} {:>9.3f} {:>8} {:>9} {:>6.1f}%\n", name, times, ms, flops,
                       bytes, 100 * share);
  };
  std::string table = fmt::format("{:<28} {:>6} {:>9} {:>8} {:>9} {:>7}\n", "kernel", "times",
                                  "ms/step", "TFLOP/s", "TB/s", "share");
  const std::vector<OpTotal> totals = totals_of(records);
  double all_ms = 0, shown_ms = 0;
  for (size_t i = 0; i < totals.size(); ++i) {
    const OpTotal& op = totals[i];
    const double ms = op.ms / double(steps), seconds = op.ms / 1e3 / double(op.count);  // of one
    all_ms += ms;
    if (i >= lines) continue;
    shown_ms += ms;
    table += line(op.name, fmt::format("{}", op.count / steps), ms,
                  fmt::format("{:.3g}", double(op.cost.flops) / seconds / 1e12),
                  fmt::format("{:.3g}", double(op.cost.bytes) / seconds / 1e12), ms / step_ms);
  }
  if (totals.size() > lines)
    table += line(fmt::format("{} more", totals.size() - lines), "", all_ms - shown_ms, "", "",
                  (all_ms - shown_ms) / step_ms);
  table += line("other", "", step_ms - all_ms, "", "", (step_ms - all_ms) / step_ms);
  table.pop_back();
  return table;
}

}  // namespace phx
