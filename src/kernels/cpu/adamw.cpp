#include "phalanx/kernels/adamw.h"

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/masters.h"

namespace phx::kernels::cpu {

namespace {

constexpr int64_t kChunk = 1024;  // elements at a time: their moments stay in the first cache

// The moments of a chunk as Acc: where they are, or those of 16 bits widened into a buffer.
template <class Acc>
class Moment {
 public:
  explicit Moment(const Tensor& x) : data_(x.raw()), narrow_(x.dtype() == DType::bf16) {}
  bool narrow() const { return narrow_; }

  Acc* open(int64_t begin, int64_t count, Acc* buffer) const {
    if (!narrow_) return static_cast<Acc*>(data_) + begin;
    const bf16* from = static_cast<const bf16*>(data_) + begin;
    for (int64_t i = 0; i < count; ++i) buffer[i] = Acc(from[i]);
    return buffer;
  }
  // random[i]: 16 bits for element i.
  void close(int64_t begin, int64_t count, const Acc* values, const uint16_t* random) const {
    if (!narrow_) return;
    bf16* to = static_cast<bf16*>(data_) + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = round_at_random(float(values[i]), random[i]);
  }

 private:
  void* data_;
  bool narrow_;
};

// Random bits of elements begin .. begin + count, at most kChunk.
void draw(const MomentBits& bits, int64_t begin, int64_t count, uint16_t* for_m, uint16_t* for_v) {
  const int64_t first = bits.first + begin, first_group = first / 4;
  const int64_t groups = ceil_div(first + count, 4) - first_group;
  uint32_t words[kChunk + 8];  // whole groups: up to three words too many at each end
#pragma omp simd
  for (int64_t k = 0; k < groups; ++k) {
    const Philox4 drawn = bits.group(first_group + k);
    words[4 * k] = drawn.x[0];
    words[4 * k + 1] = drawn.x[1];
    words[4 * k + 2] = drawn.x[2];
    words[4 * k + 3] = drawn.x[3];
  }
  const uint32_t* own = words + (first - 4 * first_group);
  for (int64_t i = 0; i < count; ++i) {
    for_m[i] = uint16_t(bits_for_m(own[i]));
    for_v[i] = uint16_t(bits_for_v(own[i]));
  }
}

}  // namespace

void adamw(const Tensor& grad, const Tensor& scalars, const AdamWOptions& options,
           const AdamWBuffers& buffers) {
  const double* slots = scalars.data<double>();
  if (slots[index_of(Slot::skip)] != 0) return;
  const MomentBits bits(slots, options);
  with_master(buffers.weight, buffers.master, [&](const auto master) {
    using Acc = decltype(master.get(0));
    const AdamWStep<Acc> step(slots, options);
    const Moment<Acc> moment1(buffers.m), moment2(buffers.v);
    for_float_dtype(grad.dtype(), [&]<class G>() {
      const G* g = grad.data<G>();
      for_elements(grad, [&](int64_t begin, int64_t end) {
        Acc m_buffer[kChunk], v_buffer[kChunk];
        uint16_t for_m[kChunk], for_v[kChunk];
        for (int64_t at = begin; at < end; at += kChunk) {
          const int64_t count = std::min(kChunk, end - at);
          Acc* m = moment1.open(at, count, m_buffer);
          Acc* v = moment2.open(at, count, v_buffer);
#pragma omp simd
          for (int64_t i = 0; i < count; ++i) {
            Acc p = master.get(at + i), new_m = m[i], new_v = v[i];
            step.update(Acc(g[at + i]), p, new_m, new_v);
            m[i] = new_m;
            v[i] = new_v;
            master.put(at + i, p);
          }
          if (!moment1.narrow() && !moment2.narrow()) continue;
          draw(bits, at, count, for_m, for_v);
          moment1.close(at, count, m, for_m);
          moment2.close(at, count, v, for_v);
        }
      });
    });
  });
}

}  // namespace phx::kernels::cpu
