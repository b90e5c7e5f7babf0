#include "phalanx/report/trace_events.h"

#include <fmt/format.h>

#include "phalanx/base/error.h"

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

}  // namespace

std::string trace_events(const std::vector<OpRecord>& records, const TraceRank& rank) {
  const int pid = rank.rank;
  std::string out;
  const auto name_thread = [&](int thread, const char* title) {
    out += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\","
        "\"args\":{{\"name\":\"{}\"}}}}",
        pid, thread, title);
  };
  out += fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"{}\"}}}}", pid,
      rank.title);
  name_thread(kHostThread, "host");
  bool used[kNumStreams] = {};
  for (const OpRecord& op : records) used[size_t(op.stream)] = true;
  for (int stream = 0; stream < kNumStreams; ++stream)
    if (used[stream]) name_thread(thread_of(StreamName(stream)), kStreamTitles[stream]);
  const auto add = [&](const OpRecord& op, int thread, double begin_ms, double end_ms) {
    out += fmt::format(
        ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"cat\":\"{}\",\"ts\":{:.3f},"
        "\"dur\":{:.3f}",
        pid, thread, op.name, category(op.kind), rank.offset_us + begin_ms * 1e3,
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

void write_trace(const Path& path, const std::string& lines) {
  write_file(path, str_cat("[\n", lines, "\n]\n"));
}

std::string trace_lines(const Path& path) {
  const std::string text = read_file(path);
  const size_t begin = text.find('\n'), end = text.rfind("\n]");
  PHX_CHECK(begin != std::string::npos && end != std::string::npos && begin < end, path.string(),
            " is not a file of events that a rank wrote");
  return text.substr(begin + 1, end - begin - 1);
}

}  // namespace phx
