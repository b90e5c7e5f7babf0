// Whether this program was compiled for the current GPU.
#pragma once

namespace phx::cuda {

// What PHX_CUDA_ARCHS said when it was built.
const char* compiled_archs();
bool has_code_for_current_gpu();

}  // namespace phx::cuda
