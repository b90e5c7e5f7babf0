#include "phalanx/comm/cuda/nccl_library.h"

#include "phalanx/base/error.h"

namespace phx::cuda {

NcclLibrary::NcclLibrary() : library_("NCCL", {"libnccl.so.2", "libnccl.so"}) {}

std::string NcclLibrary::version() const {
  int code = 0;
  (void)ncclGetVersion(&code);
  return str_cat(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

std::string NcclLibrary::text(ncclResult_t result) const {
  const char* last = ncclGetLastError(nullptr);
  return str_cat(ncclGetErrorString(result),
                 last != nullptr && *last != '\0' ? str_cat(" (", last, ")") : "");
}

}  // namespace phx::cuda
