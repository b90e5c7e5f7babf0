#include "phalanx/report/op_table.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(OpTable, SaysTimesRatesAndWhatIsLeft) {
  const std::vector<OpRecord> records = {
      {"matmul", {.flops = 2'000'000'000, .bytes = 1'000'000}, 0, 2},
      {"matmul", {.flops = 2'000'000'000, .bytes = 1'000'000}, 2, 4},
      {"add", {.flops = 0, .bytes = 3'000'000'000}, 4, 5},
      {"cast", {.flops = 0, .bytes = 1'000}, 5, 5.5},
      {"update", {}, 0, 8, OpKind::phase}};
  EXPECT_EQ(op_table(records, /*steps=*/1, /*step_ms=*/8, /*lines=*/2),
            "kernel                        times   ms/step  TFLOP/s      TB/s   share\n"
            "matmul                            2     4.000        1    0.0005   50.0%\n"
            "add                               1     1.000        0         3   12.5%\n"
            "1 more                                  0.500                       6.2%\n"
            "other                                   2.500                      31.2%");
}

}  // namespace
}  // namespace phx
