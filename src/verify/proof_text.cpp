#include "phalanx/verify/proof_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "phalanx/base/format.h"

namespace phx {

namespace {

using Kind = ParityEntry::Kind;

constexpr size_t kNames = 5, kFaults = 20;  // unless all are wanted

std::string table(const Parity& parity) {
  int steps = 0;
  for (const ParityEntry& entry : parity.entries) steps = std::max(steps, entry.step);
  std::string text = fmt::format("{:<28}", "largest difference, relative");
  for (int step = 1; step <= steps; ++step)
    text += fmt::format("{:>12}", fmt::format("step {}", step));
  const auto row = [&](const char* name, Kind kind, int first) {
    text += fmt::format("\n  {:<26}", name);
    for (int step = 1; step <= steps; ++step)
      text += step < first ? fmt::format("{:>12}", "")
                           : fmt::format("{:>12.1e}", parity.worst(kind, step));
  };
  const auto has = [&](Kind kind) {
    return std::ranges::find(parity.entries, kind, &ParityEntry::kind) != parity.entries.end();
  };
  row("loss", Kind::loss, 1);
  row("gradient norm", Kind::grad_norm, 1);
  if (has(Kind::router)) row("loads and router losses", Kind::router, 1);
  row("gradients", Kind::gradient, 1);
  row("weights after it", Kind::weight, steps);
  if (has(Kind::buffer)) row("experts' biases and loads", Kind::buffer, steps);
  row("validation loss after it", Kind::evaluation, steps);
  return text + "\n";
}

std::string names(const Parity& parity, bool all) {
  std::string text = all ? "all of them, the worst first\n" : "the worst of them\n";
  size_t shown = 0;
  for (const ParityEntry& entry : parity.entries) {
    if (!all && ++shown > kNames) break;
    text += fmt::format("  {:>8.1e}  {}\n", entry.error, entry.text());
  }
  return text;
}

}  // namespace

std::string proof_text(const Parity& parity, int world, bool all) {
  std::string text = table(parity) + names(parity, all);
  const std::vector<std::string> faults = parity.faults();
  if (faults.empty()) {
    return text + fmt::format(
                      "proved: {} ranks compute what one rank computes; nothing differs by more "
                      "than {:.1e} of its largest value (limit {:.0e})\n",
                      world, parity.worst(), kParityTolerance);
  }
  text += fmt::format("not proved: {} ranks do not compute what one rank computes\n", world);
  for (size_t i = 0; i < faults.size() && (all || i < kFaults); ++i)
    text += "  " + faults[i] + "\n";
  if (!all && faults.size() > kFaults)
    text += fmt::format("  and {} more; --verbose lists them\n", faults.size() - kFaults);
  return text;
}

std::string resume_text(const ResumeProof& proof) {
  if (proof.faults.empty())
    return fmt::format(
        "proved: losses and norms of {} iterations{} and {} tensors of {}, weights and optimizer "
        "state, are the same to the byte\n",
        proof.losses.size(),
        proof.skipped_iterations > 0 ? fmt::format(" ({} skipped)", proof.skipped_iterations) : "",
        proof.tensors, format_bytes(proof.bytes));
  std::string text = "not proved: a stop in the middle changes the run\n";
  for (const std::string& fault : proof.faults) text += "  " + fault + "\n";
  return text;
}

}  // namespace phx
