#include "phalanx/kernels/rope.h"

#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

namespace {

// Turns the pairs of one head. `sign` is the direction. Each pair is read before it is written, so
// in place is safe.
template <class T, class Acc>
void turn(T* x, const Acc* cosines, const Acc* sines, int64_t count, RopePairs pairs, Acc sign) {
  if (pairs == RopePairs::halves) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const Acc a = Acc(x[i]), b = Acc(x[count + i]), sine = sign * sines[i];
      x[i] = T(a * cosines[i] - b * sine);
      x[count + i] = T(b * cosines[i] + a * sine);
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const Acc a = Acc(x[2 * i]), b = Acc(x[2 * i + 1]), sine = sign * sines[i];
      x[2 * i] = T(a * cosines[i] - b * sine);
      x[2 * i + 1] = T(b * cosines[i] + a * sine);
    }
  }
}

}  // namespace

void rope(Tensor& x, const Tensor& table, const RopeHeads& heads, RopePairs pairs,
          const RopePositions& at, RopeDirection direction) {
  const int64_t width = x.dim(-1), rows = x.numel() / width;
  const int64_t b = x.rank() == 3 ? x.dim(1) : 1, count = table.dim(2);
  const int32_t* explicit_positions =
      at.positions.defined() ? at.positions.data<int32_t>() : nullptr;
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(x, rows, heads.groups * heads.n * 2 * count, [&](int64_t row) {
      const int64_t position = explicit_positions ? explicit_positions[row] : at.offset + row / b;
      PHX_CHECK(position >= 0 && position < table.dim(0), "rope: row ", row, " is at position ",
                position, ", but the table has ", table.dim(0), " positions");
      const Acc* cosines = table.data<Acc>() + position * 2 * count;
      for (int64_t group = 0; group < heads.groups; ++group) {
        T* head = x.data<T>() + row * width + heads.first_channel +
                  (heads.first + group * heads.stride) * heads.d;
        for (int64_t n = 0; n < heads.n; ++n, head += heads.d)
          turn(head, cosines, cosines + count, count, pairs, Acc(int(direction)));
      }
    });
  });
}

}  // namespace phx::kernels::cpu
