// From a kernel's one declaration to its cpu::, cuda:: or meta:: version, by device alone.
#pragma once

#include "phalanx/core/op_trace.h"
#include "phalanx/core/tensor.h"

#ifdef PHX_HAVE_CUDA
#define PHX_DISPATCH_CUDA(function, ...) return cuda::function(__VA_ARGS__)
#else
#define PHX_DISPATCH_CUDA(function, ...) ::phx::throw_error("built without CUDA")
#endif

// A traced kernel is counted by its meta version, which does nothing else.
#define PHX_DISPATCH(device, function, ...)                             \
  const ::phx::OpScope traced_op((device).runtime(), #function);        \
  if (traced_op.traced() && (device).kind() != ::phx::DeviceKind::meta) \
    meta::function(__VA_ARGS__);                                        \
  switch ((device).kind()) {                                            \
    case ::phx::DeviceKind::cpu:                                        \
      return cpu::function(__VA_ARGS__);                                \
    case ::phx::DeviceKind::meta:                                       \
      return meta::function(__VA_ARGS__);                               \
    case ::phx::DeviceKind::cuda:                                       \
      PHX_DISPATCH_CUDA(function, __VA_ARGS__);                         \
  }

// Declares the three versions beside the public one:
//   PHX_KERNEL(void, rms_norm, (const Tensor& x, ..., Tensor& rstd));
#define PHX_KERNEL(result, function, parameters) \
  result function parameters;                    \
  namespace cpu {                                \
  result function parameters;                    \
  }                                              \
  namespace cuda {                               \
  result function parameters;                    \
  }                                              \
  namespace meta {                               \
  result function parameters;                    \
  }
