// Hidden dropout. Whether an element is kept depends on global indices only, so the mask is the
// same on every device and under every layout, and the backward draws it again instead of storing
// it: key (seed, site, step), counter (sample, position, channel / 4, 0), word channel % 4; an
// element is kept if its uniform number is >= p, and scaled by 1 / (1 - p).
#pragma once

#include <cstdint>
#include <limits>

#include "phalanx/core/autograd.h"
#include "phalanx/core/philox.h"
#include "phalanx/core/sample_place.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// Which random decision this is, and where in the global batch its tensor [s, b, h] stands.
struct RandomSite {
  uint64_t seed = 0;
  uint64_t site = 0;  // site_of("layer.op")
  // A host value: it becomes a kernel argument. For CUDA graphs a device-resident step can take its
  // place, the key is then made inside of the kernel.
  int64_t step = 0;
  SamplePlace samples = {};
  int64_t first_position = 0;  // of s = 0
  // Rows from `split` on stand elsewhere in the sequence: context parallelism gives a rank two
  // chunks.
  int64_t split = std::numeric_limits<int64_t>::max();
  int64_t position_after_split = 0;
};

// What a kernel needs of it for one tensor of s * b rows. 32 bits, because the GPU divides them
// several times faster.
struct DropoutMask {
  uint64_t key;
  uint32_t b;
  uint32_t tokens;  // of a sample; the largest number where a row is one sample
  int64_t first_sample, sample_stride, first_position, split, position_after_split;
  float p;

  // The four words of channels 4 group .. 4 group + 3.
  PHX_HD Philox4 words(uint32_t row, uint32_t group) const {
    const int64_t s = row / b;
    const auto place =
        uint32_t(s < split ? first_position + s : position_after_split + (s - split));
    const uint32_t nth = row % b + place / tokens;
    return philox4x32(key, uint32_t(first_sample + nth * sample_stride), place % tokens, group, 0);
  }
  PHX_HD bool keeps(uint32_t word) const { return uniform_from(word) >= p; }
};

// For x [s, b, h] or [t, h] (one sample of t positions).
DropoutMask dropout_mask(const Tensor& x, double p, const RandomSite& site);
inline double dropout_scale(double p) { return 1.0 / (1.0 - p); }

// x [s, b, h]; y [s, b, h] sink: y = beta * y + mask * x / (1 - p). The backward is the same with
// dy.
PHX_KERNEL(void, dropout, (const Tensor& x, double p, const RandomSite& site, const Sink& y))

// out = x + dropout(y + bias): x, y, out [s, b, h]; bias [h] or undefined.
PHX_KERNEL(void, bias_dropout_add,
           (const Tensor& x, const Tensor& y, const Tensor& bias, double p, const RandomSite& site,
            Tensor& out))

// dbias [h] sink = sum over rows of dropout(dout). `workspace` [blocks, h] in acc_dtype: partial
// sums of row blocks, added in order.
PHX_KERNEL(void, dropout_bias_backward,
           (const Tensor& dout, double p, const RandomSite& site, Tensor& workspace,
            const Sink& dbias))

// The common front: makes the workspace, then dispatches.
void dropout_bias_backward(const Tensor& dout, double p, const RandomSite& site, const Sink& dbias);

}  // namespace phx::kernels
