#include "phalanx/kernels/gemm_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/core/runtime.h"
#ifdef PHX_HAVE_CUDA
#include "phalanx/kernels/cuda/gemm_table.h"
#endif
#include "support/temp_folder.h"

namespace phx::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const GemmTuning kH200{.gpu = "NVIDIA H200", .library = 130002, .products = 18};

TEST(GemmTuning, SaysThatNoTableFitsAndWhatTuningWouldBring) {
  const std::string line = gemm_tuning_line(kH200);
  EXPECT_THAT(line, HasSubstr("no table fits NVIDIA H200 and cuBLASLt 130002"));
  EXPECT_THAT(line, HasSubstr("hint: `phalanx tune` with this run's flags takes about a minute"));
}

TEST(GemmTuning, SaysWhichShareOfTheProductsIsTuned) {
  GemmTuning tuning = kH200;
  tuning.source = "the program's table";
  tuning.tuned = 12;
  tuning.tuned_share = 0.804;
  tuning.gain = 0.031;
  const std::string line = gemm_tuning_line(tuning);
  EXPECT_THAT(line, HasSubstr("12 of 18 tuned, 80% of their operations, by the program's table"));
  EXPECT_THAT(line, HasSubstr("the table's products gained 3.1%"));
}

TEST(GemmTuning, HasNoAdviceWhereEverythingIsTunedOrTablesAreOff) {
  GemmTuning tuning = kH200;
  tuning.source = "table.json";
  tuning.tuned = 18;
  EXPECT_THAT(gemm_tuning_line(tuning), Not(HasSubstr("hint")));
  tuning.off = true;
  EXPECT_EQ(gemm_tuning_line(tuning), "products: by the library's choice (--gemm-table none)");
}

TEST(GemmTuning, TablesInTheProgramAreReadable) {
  for (const std::string& line : shipped_gemm_tables())  // throws where one is not
    EXPECT_THAT(line, HasSubstr(" products"));
}

TEST(GemmTuning, HasNothingToSayOfACpu) {
  Runtime runtime({.kind = DeviceKind::cpu});
  EXPECT_FALSE(gemm_tuning(runtime));
}

#ifdef PHX_HAVE_CUDA
TEST(GemmTuning, TablesTellProductsInStridesFromCompactOnes) {
  const GemmProblem compact{.m = 512, .n = 256, .k = 64, .batch = 8};
  GemmProblem heads = compact;
  heads.layout_a = {.row = 8192, .matrix = 256};
  heads.layout_c = {.row = 2048, .matrix = 64};
  const cuda::LtProblem plain = cuda::lt_problem(compact), strided = cuda::lt_problem(heads);
  // The library's operands are swapped.
  EXPECT_EQ(strided.layout_b.row, 8192);
  EXPECT_EQ(strided.layout_a, GemmLayout{});
  cuda::GemmTable table{.gpu = "NVIDIA H200", .library = 130100, .algorithms = {}};
  table.algorithms[plain] = {.algorithm = {}, .first_ms = 2, .best_ms = 1};
  table.algorithms[strided] = {.algorithm = {}, .first_ms = 4, .best_ms = 3};
  const TempFolder folder;
  table.write(folder / "table.json");
  const cuda::GemmTable read = cuda::GemmTable::read(folder / "table.json");
  ASSERT_EQ(read.algorithms.size(), 2u);
  EXPECT_EQ(read.algorithms.at(plain).best_ms, 1);
  EXPECT_EQ(read.algorithms.at(strided).best_ms, 3);
  EXPECT_THAT(cuda::describe(strided), HasSubstr("in strides"));
}
#endif

}  // namespace
}  // namespace phx::kernels
