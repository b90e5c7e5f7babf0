#include "phalanx/checkpoint/copy_box.h"

#include <cstring>

#include "phalanx/base/error.h"

namespace phx {

void copy_box(std::span<const std::byte> whole, const TensorInfo& info, const Box& box,
              std::span<std::byte> out, const std::string& where) {
  const size_t dims = info.shape.size();
  PHX_CHECK(box.begin.size() == dims && box.size.size() == dims, where, " has ", dims,
            " dimensions, the box that is asked for ", box.size.size());
  const int64_t element = size_of(info.dtype);
  int64_t total = 1, asked = 1;
  for (size_t i = 0; i < dims; ++i) {
    PHX_CHECK(box.begin[i] >= 0 && box.size[i] >= 0 && box.begin[i] <= info.shape[i] &&
                  box.size[i] <= info.shape[i] - box.begin[i],
              where, " has ", info.shape[i], " elements along dimension ", i, "; ", box.size[i],
              " from ", box.begin[i], " on are asked for");
    total *= info.shape[i];
    asked *= box.size[i];
  }
  PHX_CHECK(int64_t(whole.size()) == total * element, where, " has ", whole.size(),
            " bytes, but its shape needs ", total * element);
  PHX_CHECK(int64_t(out.size()) == asked * element, where, ": ", asked * element,
            " bytes are asked for, with room for ", out.size());
  if (asked == 0) return;

  // Trailing dimensions that are taken whole make one run of bytes.
  size_t run_dim = dims;
  int64_t run = element;
  while (run_dim > 0) {
    --run_dim;
    const bool all = box.size[run_dim] == info.shape[run_dim];
    run *= box.size[run_dim];
    if (!all) break;
  }
  std::vector<int64_t> at(run_dim, 0);  // position within the box along the leading dimensions
  for (std::byte* to = out.data(); to < out.data() + out.size(); to += run) {
    int64_t offset = 0;
    for (size_t i = 0; i < dims; ++i)
      offset = offset * info.shape[i] + box.begin[i] + (i < run_dim ? at[i] : 0);
    std::memcpy(to, whole.data() + offset * element, size_t(run));
    for (size_t i = run_dim; i-- > 0;) {
      if (++at[i] < box.size[i]) break;
      at[i] = 0;
    }
  }
}

}  // namespace phx
