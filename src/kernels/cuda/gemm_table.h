// The file that `phalanx tune` writes: a product and the algorithm that was fastest for it. An
// algorithm is cuBLASLt's own 64 bytes, which mean something to that version of the library alone.
// Files in kernels/cuda/tables are compiled into the program.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/kernels/cuda/lt_problem.h"

namespace phx::kernels::cuda {

struct TunedAlgorithm {
  cublasLtMatmulAlgo_t algorithm;
  double first_ms = 0, best_ms = 0;  // the library's first choice, and this one; 0: not known
};

struct GemmTable {
  std::string gpu;  // "NVIDIA H200"
  size_t library = 0;
  std::map<LtProblem, TunedAlgorithm> algorithms;

  static GemmTable read(const Path& path);
  static GemmTable parse(std::string_view text, const std::string& name);
  void write(const Path& path) const;
};

std::string describe(const LtProblem& problem);
// "NVIDIA_H200_130002": how files of a GPU and a library are named.
std::string gemm_table_name(const std::string& gpu, size_t library);
// In the user's cache folder; empty if there is none.
Path default_gemm_table(const std::string& gpu, size_t library);
// That was compiled into the program.
std::optional<GemmTable> shipped_gemm_table(const std::string& gpu, size_t library);
std::vector<GemmTable> shipped_gemm_tables();

}  // namespace phx::kernels::cuda
