#include <algorithm>
#include <vector>

#include "phalanx/kernels/cpu/router_order.h"
#include "phalanx/kernels/router.h"

namespace phx::kernels::cpu {

void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t experts,
                          int64_t capacity, bool by_weight, Tensor&, Tensor& keep) {
  const int64_t choices = indices.numel();
  const int32_t* chosen = indices.data<int32_t>();
  uint8_t* kept = keep.data<uint8_t>();
  for_acc(probs, [&]<class Acc>() {
    std::vector<std::vector<int64_t>> of_expert(static_cast<size_t>(experts));
    for (int64_t i = 0; i < choices; ++i)
      if (chosen[i] >= 0) of_expert[size_t(chosen[i])].push_back(i);
    std::fill(kept, kept + choices, uint8_t(0));
    for (std::vector<int64_t>& list : of_expert) {
      if (by_weight)  // stable: equal weights stay in the tokens' order
        std::ranges::stable_sort(list, [&](int64_t a, int64_t b) {
          return before(probs.data<Acc>()[a], probs.data<Acc>()[b]);
        });
      for (size_t i = 0; i < std::min(list.size(), size_t(capacity)); ++i) kept[list[i]] = 1;
    }
  });
}

void drop_choices(const Tensor& keep, Tensor& indices, Tensor& probs) {
  const uint8_t* kept = keep.data<uint8_t>();
  for_acc(probs, [&]<class Acc>() {
    for (int64_t i = 0; i < keep.numel(); ++i) {
      if (kept[i] != 0) continue;
      indices.data<int32_t>()[i] = -1;
      probs.data<Acc>()[i] = Acc(0);
    }
  });
}

}  // namespace phx::kernels::cpu
