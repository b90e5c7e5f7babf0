#include "phalanx/train/recompute_modules.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "phalanx/base/error.h"

namespace phx {

namespace {

// Each is a field of RecomputePolicy.
constexpr std::array kPlaces{"core_attn", "layernorm",      "activation",
                             "moe_act",   "shared_experts", "mla_up_proj"};

template <class Names>
std::string joined(const Names& names) {
  std::string text;
  for (const auto& name : names) text += str_cat(text.empty() ? "" : ", ", name);
  return text;
}

}  // namespace

std::vector<std::string> recomputed_parts(const std::vector<std::string>& modules) {
  std::vector<std::string> parts;
  std::ranges::copy_if(modules, std::back_inserter(parts), [](const std::string& module) {
    return std::ranges::find(kPlaces, module) == kPlaces.end();
  });
  return parts;
}

Problems recompute_problems(const ModelFamily& family, const TransformerConfig& model,
                            const std::vector<std::string>& modules) {
  const std::vector<std::string> parts = recomputed_parts(modules);
  if (parts.empty()) return {};
  const std::vector<std::string> known = family(model)->part_names();
  Problems problems;
  for (const std::string& part : parts) {
    if (std::ranges::find(known, part) != known.end()) continue;
    problems.push_back({ProblemKind::value, "--recompute-modules",
                        str_cat("--recompute-modules ", part, ": no layer of --model ", family.name,
                                " has a part of this name"),
                        str_cat(known.empty() ? "its layers have no parts with names"
                                              : "parts of its layers: " + joined(known),
                                "; places in parts: ", joined(kPlaces))});
  }
  return problems;
}

}  // namespace phx
