// NCCL's functions, from the library that is opened at first use.
#pragma once

#include <nccl.h>

#include "phalanx/core/cuda/library.h"

namespace phx::cuda {

class NcclLibrary {
 public:
  NcclLibrary();

  std::string version() const;  // "2.28.9"
  // What NCCL says about a result, and about its last error.
  std::string text(ncclResult_t result) const;

 private:
  Library library_;
  template <class Function>
  Function find(const char* name, Function) const {
    return library_.function<Function>(name);
  }

 public:
#define PHX_NCCL_FUNCTION(name) decltype(&::name) name = find(#name, decltype(&::name){})
  PHX_NCCL_FUNCTION(ncclGetVersion);
  PHX_NCCL_FUNCTION(ncclGetUniqueId);
  PHX_NCCL_FUNCTION(ncclCommInitRankConfig);
  PHX_NCCL_FUNCTION(ncclCommDestroy);
  PHX_NCCL_FUNCTION(ncclCommAbort);
  PHX_NCCL_FUNCTION(ncclCommGetAsyncError);
  PHX_NCCL_FUNCTION(ncclGetErrorString);
  PHX_NCCL_FUNCTION(ncclGetLastError);
  PHX_NCCL_FUNCTION(ncclAllReduce);
  PHX_NCCL_FUNCTION(ncclAllGather);
  PHX_NCCL_FUNCTION(ncclReduceScatter);
  PHX_NCCL_FUNCTION(ncclBroadcast);
  PHX_NCCL_FUNCTION(ncclSend);
  PHX_NCCL_FUNCTION(ncclRecv);
  PHX_NCCL_FUNCTION(ncclGroupStart);
  PHX_NCCL_FUNCTION(ncclGroupEnd);
#undef PHX_NCCL_FUNCTION
};

}  // namespace phx::cuda
