// Reading a torch_dist checkpoint's tensors: boxes put together from chunks and from flat buckets.
#include <algorithm>
#include <iterator>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/torch_dist.h"

namespace phx {

void TorchDistCheckpoint::read(const std::string& name, const Box& box,
                               std::span<std::byte> out) const {
  const auto info = infos_.find(name);
  PHX_CHECK(info != infos_.end(), path_.native(), " has no tensor ", name, " among its ",
            infos_.size());
  check_box(str_cat(path_.native(), ": ", name), info->second, box, out.size());
  const auto flat = flat_parts_.find(name);
  if (flat == flat_parts_.end()) return copy_stacked(name, parts_.at(name), box, out);
  for (const FlatPart& part : flat->second) copy_flat(part, box, out);
}

void TorchDistCheckpoint::copy_stacked(const std::string& name, const Part& part, const Box& box,
                                       std::span<std::byte> out) const {
  Box wanted{part.index, Dims(part.index.size(), 1)};
  wanted.begin.insert(wanted.begin.end(), box.begin.begin(), box.begin.end());
  wanted.size.insert(wanted.size.end(), box.size.begin(), box.size.end());
  files_.copy(name, *part.tensor, wanted, out);
}

// Run by run: where the innermost axes are wanted whole, several rows are one.
void TorchDistCheckpoint::copy_flat(const FlatPart& part, const Box& wanted,
                                    std::span<std::byte> out) const {
  const auto both = intersection(part.box, wanted);
  if (!both) return;
  const Dims held = dense_strides(part.box.size), into = dense_strides(wanted.size);
  size_t outer = both->size.size();  // axes before it are stepped through
  int64_t run = 1;
  while (outer > 0) {
    run *= both->size[--outer];
    if (both->size[outer] != part.box.size[outer] || both->size[outer] != wanted.size[outer]) break;
  }
  const auto& chunks = flat_chunks_.at(part.flat);
  const auto copy_run = [&](int64_t from, int64_t to) {
    for (int64_t left = run; left > 0;) {
      const TorchDistChunk& chunk = *std::prev(chunks.upper_bound(from))->second;
      const int64_t at = from - chunk.box.begin[0];
      const int64_t count = std::min(left, chunk.box.size[0] - at);
      const TorchTensor& tensor = files_.chunk("a bucket", *part.flat, chunk);
      const Dims one = {1};
      tensor.copy({{at}, {count}}, {out.data() + to * size_of(DType::f32), one});
      from += count, to += count, left -= count;
    }
  };
  Dims index(outer, 0);
  for (;;) {
    int64_t from = part.begin, to = 0;
    for (size_t i = 0; i < both->size.size(); ++i) {
      const int64_t at = both->begin[i] + (i < outer ? index[i] : 0);
      from += (at - part.box.begin[i]) * held[i];
      to += (at - wanted.begin[i]) * into[i];
    }
    copy_run(from, to);
    size_t axis = outer;
    while (axis > 0 && ++index[axis - 1] == both->size[axis - 1]) index[--axis] = 0;
    if (axis == 0) break;
  }
}

}  // namespace phx
