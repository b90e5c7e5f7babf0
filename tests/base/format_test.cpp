#include "phalanx/base/format.h"

#include <gtest/gtest.h>

#include <limits>

namespace phx {
namespace {

TEST(Format, BytesInBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1320702444), "1.23 GiB");
  EXPECT_EQ(format_bytes(int64_t{142600} << 20), "139 GiB");
  EXPECT_EQ(format_bytes(-1536), "-1.50 KiB");
}

TEST(Format, RoundingUpToTheNextUnitUsesThatUnit) {
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_count(999.7), "1.00 k");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_duration(59.97), "1 min 00 s");
  EXPECT_EQ(format_duration(0.9996), "1.0 s");
}

TEST(Format, CountsKeepThreeDigits) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(1236), "1.24 k");
  EXPECT_EQ(format_count(8030261248.), "8.03 B");
  EXPECT_EQ(format_count(15e12), "15.0 T");
}

TEST(Format, ThousandsAreGrouped) {
  EXPECT_EQ(format_thousands(0), "0");
  EXPECT_EQ(format_thousands(999), "999");
  EXPECT_EQ(format_thousands(1000), "1,000");
  EXPECT_EQ(format_thousands(-123456), "-123,456");
  EXPECT_EQ(format_thousands(8030261248), "8,030,261,248");
}

TEST(Format, DurationsInTwoUnits) {
  EXPECT_EQ(format_duration(12e-6), "12 us");
  EXPECT_EQ(format_duration(0.85), "850 ms");
  EXPECT_EQ(format_duration(12.34), "12.3 s");
  EXPECT_EQ(format_duration(185), "3 min 05 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 min");
  EXPECT_EQ(format_duration(55 * 3600), "2 d 07 h");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "?");
}

TEST(Format, TextFromAFileIsShortAndWithoutControlCharacters) {
  EXPECT_EQ(printable("layer.weight \xc3\xa4"), "layer.weight \xc3\xa4");
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[2J\n\x7f", 9)), "a?b?[2J??");
  const std::string longest(120, 'x');
  EXPECT_EQ(printable(longest), longest);
  EXPECT_EQ(printable(longest + "y"), longest + "...");
}

}  // namespace
}  // namespace phx
