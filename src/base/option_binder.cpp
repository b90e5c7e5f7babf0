#include "phalanx/base/option_binder.h"

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::string text_of(double value) { return value_text(nlohmann::json(value)); }

}  // namespace

void FieldRules::Range::check(double value) const {
  const bool above = low_allowed ? value >= low : value > low;
  const bool below = high_allowed ? value <= high : value < high;
  PHX_CHECK(above && below, "should be ", rule);
}

void FieldRules::apply(const Positive&) {
  ranges_.push_back({0, kInfinite, false, true, "positive"});
}
void FieldRules::apply(const NotNegative&) {
  ranges_.push_back({0, kInfinite, true, true, "0 or more"});
}
void FieldRules::apply(const AtLeast& rule) {
  ranges_.push_back({rule.low, kInfinite, true, true, text_of(rule.low) + " or more"});
}
void FieldRules::apply(const InRange& rule) {
  ranges_.push_back({rule.low, rule.high, true, true,
                     "between " + text_of(rule.low) + " and " + text_of(rule.high)});
}
void FieldRules::apply(const FractionBelowOne&) {
  ranges_.push_back({0, 1, true, false, "at least 0 and below 1"});
}
void FieldRules::apply(const OneOf& rule) { option_.choices = rule.choices; }
void FieldRules::apply(const Refuses& rule) { option_.refused = rule.choices; }
void FieldRules::apply(const Required&) { option_.required = true; }
void FieldRules::apply(const Alias& alias) { option_.aliases.push_back(alias.name); }
void FieldRules::apply(const Means& means) {
  option_.switches.push_back({means.flag, means.value});
}
void FieldRules::apply(const OffSwitch& off) { option_.switches.push_back({off.flag, "false"}); }
void FieldRules::apply(const DefaultIs& text) { option_.default_text = text.text; }
void FieldRules::apply(const Own&) { option_.own = true; }

template Option FieldBinder::start<bool>(const char*, const char*) const;
template Option FieldBinder::start<int64_t>(const char*, const char*) const;
template Option FieldBinder::start<double>(const char*, const char*) const;
template Option FieldBinder::start<std::string>(const char*, const char*) const;
template void FieldBinder::finish<bool>(Option, bool&, const FieldRules&);
template void FieldBinder::finish<int64_t>(Option, int64_t&, const FieldRules&);
template void FieldBinder::finish<double>(Option, double&, const FieldRules&);
template void FieldBinder::finish<std::string>(Option, std::string&, const FieldRules&);

}  // namespace phx
