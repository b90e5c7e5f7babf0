// Which algorithm of cuBLASLt a product takes is never decided inside a run, so that a run computes
// the same way every time: it is the library's first choice, or what a table says that
// `phalanx tune` wrote. The table is made for one kind of GPU and one version of the library, and
// timed under load: at its power limit a card is fastest with algorithms that move less.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/core/runtime.h"

namespace phx::kernels {

struct TunedGemm {
  std::string problem;  // "8192 x 4096 x 14336 TN bf16 to f32"
  int candidates = 0;
  double flops = 0;
  double first_ms = 0, best_ms = 0;  // the library's first choice, and what the table has
};

// Times the algorithms of every product that this device has computed so far and writes the table;
// entries of an older table for other products stay. `progress` hears of each product.
std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& table,
                                  const std::function<void(const TunedGemm&)>& progress = {});

// Where a run looks for its table if it is not told: in the user's cache folder, by GPU and
// library. Empty if there is no such folder.
Path default_gemm_table(Runtime& runtime);

}  // namespace phx::kernels
