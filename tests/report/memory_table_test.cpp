#include "phalanx/report/memory_table.h"

#include <gtest/gtest.h>

#include "phalanx/base/format.h"

namespace phx {
namespace {

TEST(MemoryTable, HasARowForEveryPurposeThatIsUsed) {
  MemoryReport report;
  report.live[size_t(Purpose::weights)] = 2048;
  report.at_peak[size_t(Purpose::weights)] = 2048;
  report.at_peak[size_t(Purpose::activations)] = 1024;
  report.peak_total = 3072;
  report.reserved = 1 << 20;
  EXPECT_EQ(memory_table(report),
            "memory by purpose     now kept   at the peak\n"
            "  weights             2.00 KiB      2.00 KiB\n"
            "  activations              0 B      1.00 KiB\n"
            "  all                 2.00 KiB      3.00 KiB\n"
            "  taken from the system: 1.00 MiB");
  report.arena = 1 << 10;
  EXPECT_TRUE(memory_table(report).ends_with(", of it the step's arena: 1.00 KiB"));
}

TEST(HostMemoryLine, SaysWhatIsThereAndNothingElse) {
  HostMemory host;
  EXPECT_EQ(host_memory_line(host, format_bytes), "");
  host.pinned.reserved = 4096;
  EXPECT_EQ(host_memory_line(host, format_bytes),
            "in host memory: 4.00 KiB pinned for activations");
  host.plain.reserved = host.plain.live[size_t(Purpose::optimizer)] = 2048;
  host.pinned.live[size_t(Purpose::optimizer)] = 1024;
  EXPECT_EQ(host_memory_line(host, format_bytes),
            "in host memory: 2.00 KiB of optimizer state, 1.00 KiB pinned for copies of gradients "
            "and weights, 3.00 KiB pinned for activations");
}

}  // namespace
}  // namespace phx
