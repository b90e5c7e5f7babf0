// Which algorithm of cuBLASLt a product takes is never decided inside a run, so that a run computes
// the same way every time: it is the library's first choice, or what a table says that
// `phalanx tune` wrote. The table is made for one kind of GPU and one version of the library, and
// timed under load: at its power limit a card is fastest with algorithms that move less. The
// program brings tables for some GPUs and libraries; those of the user come before them.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/core/runtime.h"
#include "phalanx/kernels/gemm_problem.h"

namespace phx::kernels {

struct TunedGemm {
  std::string problem;  // "8192 x 4096 x 14336 TN bf16 to f32"
  int candidates = 0;
  double flops = 0;
  double first_ms = 0, best_ms = 0;  // the library's first choice, and what the table has
};

// Times the algorithms of every product that this device has computed so far, or that it is told to
// expect, and writes the table; entries of an older table for other products stay. `progress` hears
// of each product.
enum class TuneWhich : uint8_t { all, only_new };  // only_new: what the table does not have yet
std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& table,
                                  const std::function<void(const TunedGemm&)>& progress = {},
                                  TuneWhich which = TuneWhich::all);
void expect_gemms(Runtime& runtime, const std::set<GemmProblem>& products);

// Where a run looks for its table if it is not told: in the user's cache folder, by GPU and
// library. Empty if there is no such folder.
Path default_gemm_table(Runtime& runtime);

// The tables in the program: "NVIDIA H200, cuBLASLt 130002: 312 products", a line each.
std::vector<std::string> shipped_gemm_tables();

// How the products of a device so far came by their algorithms.
struct GemmTuning {
  std::string gpu;
  size_t library = 0;
  std::string source;  // of the table; empty if there is none for this GPU and library
  bool off = false;    // --gemm-table none
  int products = 0, tuned = 0;
  double tuned_share = 0;  // of the floating-point operations
  double gain = 0;         // of the time of the table's products, where it says so
};
std::optional<GemmTuning> gemm_tuning(Runtime& runtime);  // nothing where there is no choice
// For the log: what is tuned, and what tuning the rest would bring.
std::string gemm_tuning_line(const GemmTuning& tuning);

}  // namespace phx::kernels
