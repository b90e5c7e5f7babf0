#include "phalanx/checkpoint/torch/split_masters.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/master_fit.h"
#include "phalanx/checkpoint/torch/strided_copy.h"
#include "phalanx/kernels/master_split.h"

namespace phx {
namespace {

constexpr std::string_view kMaster = "optimizer.master.";
constexpr std::string_view kRemainder = "optimizer.master_remainder.";
constexpr int64_t kBlock = 1 << 22;  // elements of a master in memory at once

}  // namespace

SplitMasters::SplitMasters(std::shared_ptr<const TensorSource> source)
    : source_(std::move(source)), infos_(source_->tensors()) {
  for (const auto& [name, info] : source_->tensors()) {
    if (!name.starts_with(kMaster) || info.dtype != DType::f32) continue;
    const std::string weight = name.substr(kMaster.size());
    const auto found = infos_.find(weight);
    if (found == infos_.end()) continue;
    PHX_CHECK(found->second.shape == info.shape, source_->description(), ": ", name, " is ",
              text_of(info.shape), ", but its weight is ", text_of(found->second.shape));
    if (found->second.dtype == DType::f32) infos_.erase(name);
    if (found->second.dtype != DType::bf16) {
      split_[weight] = {name, Part::whole};
      continue;
    }
    const std::string remainder = std::string(kRemainder) + weight;
    infos_.erase(name);
    infos_[remainder] = {DType::u16, info.shape};
    split_[weight] = {name, Part::weight};
    split_[remainder] = {name, Part::remainder};
  }
}

void SplitMasters::check_weights(const std::string& name, const Box& box,
                                 std::span<const float> masters) const {
  const DType dtype = infos_.at(name).dtype;
  std::vector<std::byte> weights(masters.size() * static_cast<size_t>(size_of(dtype)));
  source_->read(name, box, weights);
  const auto misfit = master_misfit(dtype, weights, masters);
  PHX_CHECK(!misfit, source_->description(), ": the weight ", name, " has ", misfit->weight,
            " where its fp32 master is ", misfit->master,
            ": the weights were changed after the optimizer's state was saved, or the state is of "
            "another model\n  hint: --no-load-optim (of convert import: --weights-only) takes the "
            "weights and leaves the state behind");
}

void SplitMasters::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = split_.find(name);
  if (found == split_.end()) return source_->read(name, box, out);
  check_box(str_cat(source_->description(), ": ", name), infos_.at(name), box, out.size());
  const auto& [master, part] = found->second;
  if (part == Part::whole) source_->read(name, box, out);
  // In rows of the box, some at a time.
  const int64_t count = *num_elements(box.size);
  if (count == 0) return;
  const int64_t rows = box.size.empty() ? 1 : box.size[0], row = count / rows;
  const int64_t step = std::max<int64_t>(1, kBlock / row);
  std::vector<float> masters;
  auto* to = out.data();
  for (int64_t begin = 0; begin < rows; begin += step) {
    Box some = box;
    const int64_t here = std::min(step, rows - begin);
    if (!box.size.empty()) {
      some.begin[0] += begin;
      some.size[0] = here;
    }
    masters.resize(static_cast<size_t>(here * row));
    source_->read(master, some, std::as_writable_bytes(std::span(masters)));
    if (part != Part::remainder) check_weights(name, some, masters);
    if (part == Part::whole) continue;
    for (const float value : masters) {
      const kernels::SplitMaster both = kernels::split_master_bits(std::bit_cast<uint32_t>(value));
      const uint16_t half = part == Part::weight ? both.weight : both.remainder;
      std::memcpy(to, &half, sizeof half);
      to += sizeof half;
    }
  }
}

}  // namespace phx
