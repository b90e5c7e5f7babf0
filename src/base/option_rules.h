// The usual rules between fields, made from option names. A rule whose fields are not all set
// holds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/options.h"

namespace phx {

// If `name` is active, `other` has to be.
Rule requires_option(const std::string& name, const std::string& other, const std::string& why);
// Not both active.
Rule excludes(const std::string& name, const std::string& other, const std::string& why);
Rule at_most_one(const std::vector<std::string>& names, const std::string& why);
Rule exactly_one(const std::vector<std::string>& names, const std::string& why);
// `divisor` divides `name`; the nearest multiples are offered.
Rule divides(const std::string& divisor, const std::string& name);
// name <= other.
Rule at_most(const std::string& name, const std::string& other);
// name < other.
Rule below(const std::string& name, const std::string& other);

// Whether an option has a value: one that was given and understood, or its default.
bool known(const OptionSet& options, const std::string& name);
// A rule on a config's fields: it runs where all of these options have values.
Rule on_fields(std::string text, std::vector<std::string> names,
               std::function<void(const OptionSet&, Problems&)> check);

// "896 and 1024 are the nearest that are": multiples of `unit` around `value`.
std::string nearest_multiples(int64_t value, int64_t unit);
// "--hidden-size 1000", or the switch alone.
std::string shown(const OptionSet& options, const std::string& name);

}  // namespace phx
