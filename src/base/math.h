// Small integer arithmetic.
#pragma once

#include <cstdint>
#include <type_traits>

#include "phalanx/base/error.h"

namespace phx {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// A conversion that must not lose anything.
template <class To, class From>
To narrow(From value) {
  const To result = static_cast<To>(value);
  PHX_ASSERT(static_cast<From>(result) == value && ((result < To{}) == (value < From{})),
             "narrowing loses ", value);
  return result;
}

}  // namespace phx
