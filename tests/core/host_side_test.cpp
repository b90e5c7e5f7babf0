#include "phalanx/core/host_side.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;

TEST(HostSide, BytesGoToTheHostAndBack) {
  Runtime runtime;
  HostSide& host = runtime.extension<HostSide>();
  const Tensor x = from_values(std::vector<double>{1, 2, 3}, {3}, DType::f32, runtime.device());
  const Tensor away = empty({3}, DType::f32, host.pinned());
  Tensor back = zeros({3}, DType::f32, runtime.device());
  host.to_host(x, away, StreamName::d2h);
  EXPECT_EQ(to_values(away), (std::vector<double>{1, 2, 3}));
  host.to_device(away, back, StreamName::h2d);
  EXPECT_EQ(to_values(back), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(host.bytes_copied(), 24);
}

TEST(HostSide, ACopyBetweenUnequalSizesIsABug) {
  Runtime runtime;
  HostSide& host = runtime.extension<HostSide>();
  const Tensor small = empty({1}, DType::f32, runtime.device());
  const Tensor large = empty({2}, DType::f32, host.pinned());
  EXPECT_NE(error_of([&] {
              host.to_host(small, large, StreamName::d2h);
            }).find("a copy of 4 bytes into 8"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              host.to_device(large, small, StreamName::h2d);
            }).find("a copy of 8 bytes into 4"),
            std::string::npos);
  EXPECT_EQ(host.bytes_copied(), 0);
}

TEST(HostSide, ItsMemoryIsReportedBesideTheDevices) {
  Runtime runtime;
  EXPECT_EQ(host_memory(runtime).reserved(), 0);
  EXPECT_EQ(runtime.made_extension<HostSide>(), nullptr) << "asking for the report made a host";

  HostSide& host = runtime.extension<HostSide>();
  const Tensor plain = empty({1000}, DType::u8, host.plain(), Purpose::optimizer);
  const Tensor pinned = empty({3000}, DType::u8, host.pinned(), Purpose::activations);
  const HostMemory memory = host_memory(runtime);
  EXPECT_EQ(memory.plain.live[size_t(Purpose::optimizer)], 1024);
  EXPECT_EQ(memory.pinned.live[size_t(Purpose::activations)], 3072);
  EXPECT_EQ(memory.reserved(), memory.plain.reserved + memory.pinned.reserved);
  EXPECT_EQ(runtime.allocator().report().peak_total, 0);
}

TEST(HostSide, PinnedMemoryHasTheRanksThreads) {
  Runtime runtime({.threads = 3});
  HostSide& host = runtime.extension<HostSide>();
  EXPECT_EQ(host.pinned().runtime().options().threads, 3);
  EXPECT_EQ(host.plain().runtime().options().threads, 1);
}

TEST(HostSide, SetZeroReachesTheLastByte) {
  Runtime runtime({.threads = 2});
  HostSide& host = runtime.extension<HostSide>();
  const int64_t n = (int64_t{5} << 19) + 7;  // two and a half pieces of work, and a bit
  const Tensor x = empty({n}, DType::u8, host.plain());
  std::fill_n(x.data<uint8_t>(), n, uint8_t{1});
  host.set_zero(x.rows(0, n - 1));
  EXPECT_EQ(std::count(x.data<uint8_t>(), x.data<uint8_t>() + n, uint8_t{0}), n - 1);
  EXPECT_EQ(x.data<uint8_t>()[n - 1], 1);
}

TEST(HostSide, TheHostOfAMetaDeviceCountsOnly) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  HostSide& host = meta.extension<HostSide>();
  const Tensor x = empty({64}, DType::f32, meta.device());
  const Tensor away = empty({64}, DType::f32, host.pinned());
  EXPECT_EQ(host.pinned().kind(), DeviceKind::meta);
  EXPECT_EQ(host.pinned().target(), DeviceKind::cpu);
  host.to_host(x, away, StreamName::d2h);
  host.set_zero(away);
  EXPECT_EQ(host.bytes_copied(), 256);
}

}  // namespace
}  // namespace phx
