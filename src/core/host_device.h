// PHX_HD marks the few functions whose one source runs on the CPU and inside CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define PHX_HD __host__ __device__ __forceinline__
#else
#define PHX_HD inline
#endif
