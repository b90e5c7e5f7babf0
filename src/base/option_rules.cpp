#include "phalanx/base/option_rules.h"

#include <algorithm>
#include <utility>

#include "phalanx/base/error.h"

namespace phx {
namespace {

void report(Problems& problems, const std::string& name, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, "--" + name, std::move(text), std::move(hint)});
}

std::string listed(const OptionSet* options, const std::vector<std::string>& names,
                   const char* last) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? str_cat(" ", last, " ") : ", ";
    text += options != nullptr ? shown(*options, names[i]) : "--" + names[i];
  }
  return text;
}

std::vector<std::string> active_ones(const OptionSet& options,
                                     const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const std::string& name : names) {
    if (options.active(name)) result.push_back(name);
  }
  return result;
}

}  // namespace

std::string shown(const OptionSet& options, const std::string& name) {
  const Option& option = options.at(name);
  if (option.kind == Option::Kind::toggle) return option.flag();
  return option.flag() + " " + options.text(name);
}

bool known(const OptionSet& options, const std::string& name) {
  const Option& option = options.at(name);
  return !option.failed && (option.given || !option.required);
}

Rule on_fields(std::string text, std::vector<std::string> names,
               std::function<void(const OptionSet&, Problems&)> check) {
  return {std::move(text), [names = std::move(names), check = std::move(check)](
                               const OptionSet& options, Problems& problems) {
            const auto is_known = [&](const std::string& name) { return known(options, name); };
            if (std::ranges::all_of(names, is_known)) check(options, problems);
          }};
}

std::string nearest_multiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  if (below == 0) return str_cat(unit, " is the nearest that is");
  return str_cat(below, " and ", below + unit, " are the nearest that are");
}

Rule requires_option(const std::string& name, const std::string& other, const std::string& why) {
  return {str_cat("--", name, " requires --", other, ": ", why),
          [=](const OptionSet& options, Problems& problems) {
            if (!options.active(name) || options.active(other)) return;
            report(problems, name, str_cat(shown(options, name), " requires --", other, ": ", why),
                   str_cat("add --", other));
          }};
}

Rule excludes(const std::string& name, const std::string& other, const std::string& why) {
  return at_most_one({name, other}, why);
}

Rule at_most_one(const std::vector<std::string>& names, const std::string& why) {
  return {str_cat("at most one of ", listed(nullptr, names, "and"), ": ", why),
          [=](const OptionSet& options, Problems& problems) {
            const std::vector<std::string> on = active_ones(options, names);
            if (on.size() < 2) return;
            report(problems, on[0],
                   str_cat(listed(&options, on, "and"), " exclude each other: ", why),
                   str_cat("keep one of ", listed(nullptr, on, "and")));
          }};
}

Rule exactly_one(const std::vector<std::string>& names, const std::string& why) {
  const Rule most = at_most_one(names, why);
  return {str_cat("exactly one of ", listed(nullptr, names, "and"), ": ", why),
          [=](const OptionSet& options, Problems& problems) {
            most.check(options, problems);
            if (!active_ones(options, names).empty()) return;
            report(problems, names[0],
                   str_cat("one of ", listed(nullptr, names, "and"), " is required: ", why),
                   str_cat("add --", names[0]));
          }};
}

Rule divides(const std::string& divisor, const std::string& name) {
  return {str_cat("--", name, " is a multiple of --", divisor),
          [=](const OptionSet& options, Problems& problems) {
            const auto value = options.number(name), unit = options.number(divisor);
            if (!value || !unit || *value < 1 || *unit < 1) return;
            const int64_t v = static_cast<int64_t>(*value), u = static_cast<int64_t>(*unit);
            if (v % u == 0) return;
            report(problems, name,
                   str_cat(shown(options, name), " is not a multiple of ", shown(options, divisor)),
                   nearest_multiples(v, u));
          }};
}

Rule at_most(const std::string& name, const std::string& other) {
  return {str_cat("--", name, " is at most --", other),
          [=](const OptionSet& options, Problems& problems) {
            const auto value = options.number(name), limit = options.number(other);
            if (!value || !limit || *value <= *limit) return;
            report(problems, name,
                   str_cat(shown(options, name), " is more than ", shown(options, other)),
                   str_cat("lower --", name, " to ", options.text(other), ", or raise --", other,
                           " to ", options.text(name)));
          }};
}

Rule below(const std::string& name, const std::string& other) {
  return {str_cat("--", name, " is below --", other),
          [=](const OptionSet& options, Problems& problems) {
            const auto value = options.number(name), limit = options.number(other);
            if (!value || !limit || *value < *limit) return;
            report(problems, name,
                   str_cat(shown(options, name), " is not below ", shown(options, other)),
                   str_cat("lower --", name, " below ", options.text(other), ", or raise --", other,
                           " above ", options.text(name)));
          }};
}

}  // namespace phx
