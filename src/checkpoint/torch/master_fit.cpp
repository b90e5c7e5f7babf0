#include "phalanx/checkpoint/torch/master_fit.h"

#include <cmath>
#include <cstring>

#include "phalanx/base/error.h"

namespace phx {
namespace {

template <class T>
bool fits(T weight, float master) {
  const auto value = static_cast<double>(static_cast<acc_t<T>>(weight));
  // Also where both are infinite.
  if (value == double{master} || value == static_cast<double>(acc_t<T>(T(master)))) return true;
  if (std::isnan(value) && std::isnan(master)) return true;
  // Of an infinite master every distance would be small enough.
  if (sizeof(T) != 2 || !std::isfinite(master)) return false;
  constexpr bool kBrain = dtype_of<T>() == DType::bf16;
  const double relative = kBrain ? 0x1p-7 : 0x1p-10, smallest = kBrain ? 0 : 0x1p-24;
  return std::abs(value - master) <= std::abs(double{master}) * relative + smallest;
}

}  // namespace

std::optional<MasterMisfit> master_misfit(DType dtype, std::span<const std::byte> weights,
                                          std::span<const float> masters) {
  return for_float_dtype(dtype, [&]<class T>() -> std::optional<MasterMisfit> {
    PHX_CHECK(weights.size() == masters.size() * sizeof(T), masters.size(), " masters and ",
              weights.size(), " bytes of weights");
    for (size_t i = 0; i < masters.size(); ++i) {
      T weight;
      std::memcpy(&weight, weights.data() + i * sizeof(T), sizeof(T));
      if (!fits(weight, masters[i]))
        return MasterMisfit{i, static_cast<float>(acc_t<T>(weight)), masters[i]};
    }
    return std::nullopt;
  });
}

}  // namespace phx
