#include "phalanx/report/memory_table.h"

#include <numeric>

#include "phalanx/base/format.h"

namespace phx {

namespace {

std::string padded(std::string text, size_t width) {
  text.insert(0, width > text.size() ? width - text.size() : 0, ' ');
  return text;
}

std::string row(const std::string& label, int64_t now, int64_t at_peak) {
  std::string name = label;
  name.resize(16, ' ');
  return "  " + name + padded(format_bytes(now), 12) + padded(format_bytes(at_peak), 14) + "\n";
}

}  // namespace

std::string memory_table(const MemoryReport& report) {
  std::string text = "memory by purpose     now kept   at the peak\n";
  for (int i = 0; i < kNumPurposes; ++i) {
    if (report.live[i] == 0 && report.at_peak[i] == 0) continue;
    text += row(name(static_cast<Purpose>(i)), report.live[i], report.at_peak[i]);
  }
  text += row("all", std::accumulate(report.live.begin(), report.live.end(), int64_t{0}),
              report.peak_total);
  text += "  taken from the system: " + format_bytes(report.reserved);
  if (report.arena > 0) text += ", of it the step's arena: " + format_bytes(report.arena);
  return text;
}

std::string host_memory_line(const HostMemory& host,
                             const std::function<std::string(int64_t)>& text) {
  if (host.reserved() == 0) return "";
  constexpr auto kStates = size_t(Purpose::optimizer);
  std::string parts;
  const auto add = [&](int64_t bytes, const char* what) {
    if (bytes > 0) parts += (parts.empty() ? "" : ", ") + text(bytes) + what;
  };
  add(host.plain.live[kStates], " of optimizer state");
  add(host.pinned.live[kStates], " pinned for copies of gradients and weights");
  add(host.pinned.reserved - host.pinned.live[kStates], " pinned for activations");
  return "in host memory: " + parts;
}

}  // namespace phx
