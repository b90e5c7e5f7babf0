#include "phalanx/train/frozen_modules.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    words.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// * stands for any letters, also for none.
bool matches(std::string_view pattern, std::string_view word) {
  if (pattern.empty()) return word.empty();
  if (pattern[0] != '*')
    return !word.empty() && pattern[0] == word[0] && matches(pattern.substr(1), word.substr(1));
  return matches(pattern.substr(1), word) || (!word.empty() && matches(pattern, word.substr(1)));
}

bool names(const std::string& module, const std::string& parameter) {
  const auto wanted = words_of(module), words = words_of(parameter);
  return !std::ranges::search(words, wanted, [](std::string_view word, std::string_view pattern) {
            return matches(pattern, word);
          }).empty();
}

}  // namespace

bool is_frozen(const std::vector<std::string>& modules, const std::string& parameter) {
  return std::ranges::any_of(modules,
                             [&](const std::string& module) { return names(module, parameter); });
}

Problems frozen_problems(const ModelFamily& family, const TransformerConfig& model,
                         const std::vector<std::string>& modules) {
  if (modules.empty()) return {};
  std::vector<std::string> parameters;
  std::set<std::string> known;  // for suggestions
  family(model)->for_each_parameter([&](const std::string& name, Parameter&) {
    parameters.push_back(name);
    for (const std::string_view word : words_of(name)) known.insert(std::string(word));
    for (size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1))
      known.insert(name.substr(0, at));
  });
  Problems problems;
  for (const std::string& module : modules) {
    if (std::ranges::any_of(parameters, [&](auto& name) { return names(module, name); })) continue;
    const std::string near = nearest(module, std::vector(known.begin(), known.end()));
    problems.push_back({ProblemKind::value, "--freeze-modules",
                        str_cat("--freeze-modules ", module, ": no parameter of --model ",
                                family.name, " has this in its name"),
                        near.empty() ? "names are like " + parameters.front()
                                     : str_cat("did you mean ", near, "?")});
  }
  if (std::ranges::all_of(parameters, [&](auto& name) { return is_frozen(modules, name); }))
    problems.push_back({ProblemKind::rule, "--freeze-modules",
                        "--freeze-modules freezes all parameters: nothing is left to train",
                        "leave some of the modules out"});
  return problems;
}

int64_t num_frozen_parameters(const ModelFamily& family, const TransformerConfig& model,
                              const std::vector<std::string>& modules) {
  if (modules.empty()) return 0;
  int64_t elements = 0;
  family(model)->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (is_frozen(modules, name)) elements += parameter.spec().global_shape.numel();
  });
  return elements;
}

}  // namespace phx
