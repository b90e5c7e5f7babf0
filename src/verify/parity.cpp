#include "phalanx/verify/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "phalanx/base/distance.h"
#include "phalanx/base/error.h"

namespace phx {

namespace {

using Kind = ParityEntry::Kind;

void compare(Kind kind, int step, const GlobalTensors& many, const GlobalTensors& one,
             Parity& parity) {
  for (const auto& [name, wanted] : one) {
    const auto found = many.find(name);
    const int64_t size = int64_t(wanted.values.size());
    if (found == many.end()) {
      parity.entries.push_back({kind, step, name, INFINITY, size});
      continue;
    }
    const GlobalTensor& got = found->second;
    parity.entries.push_back(
        {kind, step, name, relative_error(got.values, wanted.values), got.missing});
  }
  for (const auto& [name, got] : many)
    PHX_CHECK(one.contains(name), "one rank has no parameter ", name);
}

double relative_error(double a, double b) { return phx::relative_error({&a, 1}, {&b, 1}); }

void compare(int step, const std::map<std::string, double>& many,
             const std::map<std::string, double>& one, Parity& parity) {
  for (const auto& [name, wanted] : one) {
    const auto found = many.find(name);
    const double got = found == many.end() ? std::nan("") : found->second;
    parity.entries.push_back({Kind::router, step, name, relative_error(got, wanted)});
  }
}

}  // namespace

std::string ParityEntry::text() const {
  switch (kind) {
    case Kind::loss:
      return fmt::format("loss of step {}", step);
    case Kind::grad_norm:
      return fmt::format("gradient norm of step {}", step);
    case Kind::router:
      return fmt::format("{} in step {}", parameter, step);
    case Kind::gradient:
      return fmt::format("gradient of {} in step {}", parameter, step);
    case Kind::weight:
    case Kind::buffer:
      return fmt::format("{} after step {}", parameter, step);
    case Kind::evaluation:
      return fmt::format("validation loss after step {}", step);
  }
  return {};
}

double Parity::worst() const { return entries.empty() ? 0 : entries.front().error; }

double Parity::worst(Kind kind, int step) const {
  for (const ParityEntry& entry : entries)
    if (entry.kind == kind && entry.step == step) return entry.error;
  return 0;
}

std::vector<std::string> Parity::faults(double tolerance) const {
  std::vector<std::string> lines;
  for (const ParityEntry& entry : entries) {
    if (entry.missing > 0)
      lines.push_back(
          fmt::format("{}: no rank holds {} of its elements", entry.text(), entry.missing));
    else if (!(entry.error <= tolerance))
      lines.push_back(
          fmt::format("{} differs by {:.1e} of its largest value", entry.text(), entry.error));
  }
  for (const std::string& name : between_replicas_in)
    lines.push_back(fmt::format("{}: ranks that hold the same elements differ, by up to {:.1e}",
                                name, between_replicas));
  return lines;
}

Parity compare(const LayoutOutcome& many, const LayoutOutcome& one) {
  PHX_CHECK(many.steps.size() == one.steps.size(), "runs of ", many.steps.size(), " and ",
            one.steps.size(), " steps");
  Parity parity{.entries = {},
                .between_replicas = many.between_replicas,
                .between_replicas_in = many.between_replicas_in};
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const StepOutcome &got = many.steps[i], &wanted = one.steps[i];
    const int step = int(i) + 1;
    parity.entries.push_back({Kind::loss, step, "", relative_error(got.loss, wanted.loss)});
    parity.entries.push_back(
        {Kind::grad_norm, step, "", relative_error(got.grad_norm, wanted.grad_norm)});
    compare(step, got.routers, wanted.routers, parity);
    compare(Kind::gradient, step, got.gradients, wanted.gradients, parity);
  }
  const int last = int(one.steps.size());
  compare(Kind::weight, last, many.weights, one.weights, parity);
  compare(Kind::buffer, last, many.buffers, one.buffers, parity);
  if (one.evaluation != 0)
    parity.entries.push_back(
        {Kind::evaluation, last, "", relative_error(many.evaluation, one.evaluation)});
  std::ranges::stable_sort(
      parity.entries, [](const ParityEntry& a, const ParityEntry& b) { return a.error > b.error; });
  return parity;
}

}  // namespace phx
