#include "phalanx/comm/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

TEST(Network, AnInterfaceIsNamedOrGivenByAddress) {
  EXPECT_EQ(addresses_of_interface("lo").at(0), "127.0.0.1");
  EXPECT_EQ(addresses_of_interface("127.0.0.1"), Hosts{"127.0.0.1"});
  EXPECT_EQ(name_of_interface("lo"), "lo");
  EXPECT_EQ(name_of_interface("127.0.0.1"), "lo");
  EXPECT_THAT(error_of([] { addresses_of_interface("eth99"); }),
              AllOf(HasSubstr("this machine has no network interface 'eth99'"),
                    HasSubstr("takes one of: "), HasSubstr("lo (127.0.0.1)")));
}

TEST(Network, KnowsItsOwnAddresses) {
  EXPECT_EQ(is_this_machine("127.0.0.1"), true);
  EXPECT_EQ(is_this_machine("localhost"), true);
  EXPECT_EQ(is_this_machine("192.0.2.1"), false) << "of the addresses kept for documentation";
  EXPECT_EQ(is_this_machine("no-such-machine.invalid"), std::nullopt);
}

TEST(Network, AMachineHasAName) {
  EXPECT_FALSE(host_name().empty());
  EXPECT_NE(host_name(), "?");
}

}  // namespace
}  // namespace phx
