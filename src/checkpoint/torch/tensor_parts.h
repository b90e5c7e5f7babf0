// A tensor whose numbers lie in several others: chunks of a distributed checkpoint, or the parts
// that tensor-parallel ranks held.
#pragma once

#include <span>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/torch_archive.h"

namespace phx {

// Copies what `source`, which holds the box `held` of a tensor from its element `from` on, has of
// `wanted` to where it belongs in `out`, the dense elements of `wanted`.
inline void copy_part(const TorchTensor& source, const Dims& from, const Box& held,
                      const Box& wanted, std::span<std::byte> out) {
  const auto both = intersection(held, wanted);
  if (!both) return;
  const Dims strides = dense_strides(wanted.size);
  Box part{both->begin, both->size};
  int64_t offset = 0;
  for (size_t i = 0; i < part.begin.size(); ++i) {
    offset += (both->begin[i] - wanted.begin[i]) * strides[i];
    part.begin[i] = both->begin[i] - held.begin[i] + from[i];
  }
  source.copy(part, {out.data() + offset * size_of(source.info.dtype), strides});
}

}  // namespace phx
