// How far numbers are apart, so that a nan can never pass: whatever cannot be compared is
// infinitely far away. (A maximum over plain differences loses a nan: every comparison with it is
// false.)
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace phx {

// |a - b|; infinity where that is a nan, also for two nans and for two equal infinities.
inline double distance(double a, double b) {
  const double apart = std::abs(a - b);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

// max |a - b| / max |b|, and without the division where all b are 0.
double relative_error(std::span<const double> a, std::span<const double> b);

}  // namespace phx
