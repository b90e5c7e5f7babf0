#include "phalanx/checkpoint/torch/joined_masters.h"

#include <cstring>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/strided_copy.h"
#include "phalanx/kernels/master_split.h"

namespace phx {
namespace {

constexpr std::string_view kOptimizer = "optimizer.";
constexpr std::string_view kMaster = "optimizer.master.";
constexpr std::string_view kRemainder = "optimizer.master_remainder.";

}  // namespace

JoinedMasters::JoinedMasters(std::shared_ptr<const TensorSource> source)
    : source_(std::move(source)) {
  for (const auto& [name, info] : source_->tensors()) {
    if (name.starts_with(kRemainder)) continue;
    const bool wide = !name.starts_with(kOptimizer) || info.dtype == DType::f32;
    infos_[name] = {wide ? info.dtype : DType::f32, info.shape};
    made_[name] = {wide ? Kind::as_is : Kind::widened, name, ""};
    if (name.starts_with(kOptimizer)) continue;
    const std::string remainder = str_cat(kRemainder, name), master = str_cat(kMaster, name);
    if (info.dtype == DType::f32) {
      made_[master] = {Kind::as_is, name, ""};
    } else if (info.dtype == DType::bf16 && source_->tensors().contains(remainder)) {
      made_[master] = {Kind::joined, name, remainder};
      made_[name] = {Kind::rounded, name, remainder};
    } else {
      continue;
    }
    infos_[master] = {DType::f32, info.shape};
  }
}

void JoinedMasters::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = made_.find(name);
  PHX_CHECK(found != made_.end(), description(), " has no tensor ", name);
  const Made& made = found->second;
  if (made.kind == Kind::as_is) return source_->read(made.from, box, out);
  check_box(str_cat(description(), ": ", name), infos_.at(name), box, out.size());
  const std::vector<float> wide = values(made, box);
  if (made.kind != Kind::rounded) {
    std::memcpy(out.data(), wide.data(), out.size());
    return;
  }
  for (size_t i = 0; i < wide.size(); ++i) {
    const bf16 half(wide[i]);
    std::memcpy(out.data() + i * sizeof half, &half, sizeof half);
  }
}

// What is kept in 16 bits, as f32: the masters, or moments.
std::vector<float> JoinedMasters::values(const Made& made, const Box& box) const {
  const size_t count = static_cast<size_t>(*num_elements(box.size));
  const DType dtype = source_->tensors().at(made.from).dtype;
  std::vector<std::byte> narrow(count * static_cast<size_t>(size_of(dtype)));
  source_->read(made.from, box, narrow);
  std::vector<uint16_t> rest(made.remainder.empty() ? 0 : count);
  if (!rest.empty()) source_->read(made.remainder, box, std::as_writable_bytes(std::span(rest)));
  std::vector<float> wide(count);
  for_float_dtype(dtype, [&]<class T>() {
    for (size_t i = 0; i < count; ++i) {
      T half;
      std::memcpy(&half, narrow.data() + i * sizeof(T), sizeof(T));
      wide[i] = static_cast<float>(half);
      if (rest.empty()) continue;
      uint16_t bits;
      std::memcpy(&bits, &half, sizeof bits);
      const uint32_t master = kernels::join_master_bits(bits, rest[i]);
      std::memcpy(&wide[i], &master, sizeof master);
    }
  });
  return wide;
}

}  // namespace phx
