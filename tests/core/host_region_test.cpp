#include "phalanx/core/host_region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

namespace phx {
namespace {

TEST(HostRegion, EveryPageIsThereBeforeItsFirstUse) {
  constexpr int64_t kBytes = (9 << 20) + 4096, kPage = 4096;
  const std::shared_ptr<void> region = host_region(kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region.get()) % (2 << 20), 0u);
  std::vector<unsigned char> resident(kBytes / kPage);
  ASSERT_EQ(::mincore(region.get(), kBytes, resident.data()), 0);
  for (unsigned char page : resident) EXPECT_EQ(page & 1, 1);
}

}  // namespace
}  // namespace phx
