// The file that `phalanx tune` writes: a product and the algorithm that was fastest for it. An
// algorithm is cuBLASLt's own 64 bytes, which mean something to that version of the library alone.
#pragma once

#include <map>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/kernels/cuda/cublas_lt.h"

namespace phx::kernels::cuda {

struct GemmTable {
  std::string gpu;  // "NVIDIA H200"
  size_t library = 0;
  std::map<LtProblem, cublasLtMatmulAlgo_t> algorithms;

  static GemmTable read(const Path& path);
  void write(const Path& path) const;
};

std::string describe(const LtProblem& problem);
// In the user's cache folder; empty if there is none.
Path default_gemm_table(const std::string& gpu, size_t library);

}  // namespace phx::kernels::cuda
