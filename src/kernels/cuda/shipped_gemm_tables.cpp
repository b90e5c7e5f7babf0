#include "phalanx/base/error.h"
#include "phalanx/kernels/cuda/gemm_table.h"

namespace phx::kernels::cuda {

namespace {

struct Shipped {
  std::string_view name, text;
};

// Made by cmake/Cuda.cmake of the files in kernels/cuda/tables. The first entry only keeps the
// array from being empty.
constexpr Shipped kShipped[] = {
    {"", ""},
#include "phalanx_gemm_tables.inc"
};

}  // namespace

std::optional<GemmTable> shipped_gemm_table(const std::string& gpu, size_t library) {
  const std::string wanted = gemm_table_name(gpu, library);
  for (const Shipped& shipped : kShipped)
    if (shipped.name == wanted) return GemmTable::parse(shipped.text, wanted);
  return {};
}

std::vector<GemmTable> shipped_gemm_tables() {
  std::vector<GemmTable> tables;
  for (const Shipped& shipped : kShipped)
    if (!shipped.name.empty()) {
      tables.push_back(GemmTable::parse(shipped.text, std::string(shipped.name)));
      PHX_CHECK(gemm_table_name(tables.back().gpu, tables.back().library) == shipped.name,
                "the table ", shipped.name, " is for ", tables.back().gpu, " and cuBLASLt ",
                tables.back().library, ": its file should be named so");
    }
  return tables;
}

}  // namespace phx::kernels::cuda
