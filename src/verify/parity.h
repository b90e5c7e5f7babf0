// What differs between two runs that should compute the same: every loss, gradient norm, number
// that routers report, gradient, weight and buffer, each with its relative error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "phalanx/verify/layout_run.h"

namespace phx {

// Agreement of doubles: max |a - b| <= 1e-10 max |b|. Sums in another order differ by some 1e-16
// times the length of the sum, a wrong term by far more than 1e-10.
constexpr double kParityTolerance = 1e-10;

struct ParityEntry {
  enum class Kind : uint8_t { loss, grad_norm, router, gradient, weight, buffer, evaluation };
  Kind kind = Kind::loss;
  int step = 1;           // from 1; of weights, buffers and evaluation: after that step
  std::string parameter;  // of a gradient, weight or buffer; of a router: what it reports
  double error = 0;       // relative to the largest; infinite where there is a nan
  int64_t missing = 0;    // elements that no rank holds

  std::string text() const;  // "gradient of decoder.layers.0.mlp.linear_fc2.weight in step 1"
};

struct Parity {
  std::vector<ParityEntry> entries;  // the worst first
  double between_replicas = 0;
  std::vector<std::string> between_replicas_in;

  double worst() const;  // of all entries
  double worst(ParityEntry::Kind kind, int step) const;
  // What is wrong, a line each; empty: nothing differs by more than `tolerance`, no element is
  // missing and ranks that hold the same hold it to the bit.
  std::vector<std::string> faults(double tolerance = kParityTolerance) const;
};

Parity compare(const LayoutOutcome& many, const LayoutOutcome& one);

}  // namespace phx
