#include "checkpoint/torch/joined_masters.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "checkpoint/torch/strided_copy.h"
#include "kernels/master_split.h"

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
    if (info.dtype == DType::f32)
      made_[master] = {Kind::as_is, name, ""};
    else if (info.dtype == DType::bf16 && source_->tensors().contains(remainder))
      made_[master] = {Kind::joined, name, remainder};
    else
      continue;
    infos_[master] = {DType::f32, info.shape};
  }
}

void JoinedMasters::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = made_.find(name);
  PHX_CHECK(found != made_.end(), description(), " has no tensor ", name);
  const auto& [kind, from, remainder] = found->second;
  if (kind == Kind::as_is) return source_->read(from, box, out);
  check_box(str_cat(description(), ": ", name), infos_.at(name), box, out.size());
  const size_t count = out.size() / sizeof(float);
  const DType dtype = source_->tensors().at(from).dtype;
  std::vector<std::byte> narrow(count * static_cast<size_t>(size_of(dtype)));
  source_->read(from, box, narrow);
  std::vector<uint16_t> rest(kind == Kind::joined ? count : 0);
  if (kind == Kind::joined) source_->read(remainder, box, std::as_writable_bytes(std::span(rest)));
  for_float_dtype(dtype, [&]<class T>() {
    for (size_t i = 0; i < count; ++i) {
      T half;
      std::memcpy(&half, narrow.data() + i * sizeof(T), sizeof(T));
      float value = static_cast<float>(half);
      if (kind == Kind::joined) {
        uint16_t bits;
        std::memcpy(&bits, &half, sizeof bits);
        const uint32_t master = kernels::join_master_bits(bits, rest[i]);
        std::memcpy(&value, &master, sizeof value);
      }
      std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
    }
  });
}

}  // namespace phx
