// Addition of gradients, the one piece of arithmetic that the graph itself needs.
#pragma once

#include "phalanx/core/autograd.h"

namespace phx {

// sink = beta * sink + x. The shapes are equal, the dtypes may differ.
void add_to_sink(const Tensor& x, const Sink& sink);

// A gradient that somebody else also holds (a residual add passes one on to both its inputs) must
// not be added to: afterwards nobody else holds it.
void make_sole_owner(Tensor& gradient);

namespace cuda {
void add_to_sink(const Tensor& x, const Sink& sink);
}

}  // namespace phx
