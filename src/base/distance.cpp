#include "phalanx/base/distance.h"

#include <algorithm>

#include "phalanx/base/error.h"

namespace phx {

double relative_error(std::span<const double> a, std::span<const double> b) {
  PHX_CHECK(a.size() == b.size(), "tensors of ", a.size(), " and ", b.size(), " elements");
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, distance(a[i], b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  // The largest may be infinite, too, and the quotient a nan.
  return largest > 0 && std::isfinite(worst) ? worst / largest : worst;
}

}  // namespace phx
